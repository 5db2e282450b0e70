// Makes the task of each name; make_task() in task.h chooses among them.
#pragma once

#include <memory>

#include "experiments/training/task.h"

namespace experiments {

std::unique_ptr<Task> make_copy_training(const attnbench::Training& training);

}  // namespace experiments
