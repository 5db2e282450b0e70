#include "experiments/training/task.h"

#include <stdexcept>

#include "experiments/training/tasks.h"

namespace experiments {

std::unique_ptr<Task> make_task(const attnbench::Training& training) {
  if (training.task == "copy") return make_copy_training(training);
  throw std::invalid_argument("task = '" + training.task + "', expected copy");
}

}  // namespace experiments
