// Makes the task that the settings name.
#include "experiments/training/task.h"

#include <stdexcept>

#include "experiments/training/tasks.h"

namespace experiments {

std::unique_ptr<Task> make_task(const attnbench::Training& training, const std::string& data) {
  if (training.task == "copy") return make_copy_training(training);
  if (training.task == "images") return make_image_training(training, data);
  if (training.task == "speech") return make_speech_training(training, data);
  if (training.task == "text") return make_text_training(training, data);
  throw std::invalid_argument("task = '" + training.task + "', expected copy, images, speech or text");
}

}  // namespace experiments
