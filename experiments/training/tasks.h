// Makes the task of each name; make_task() in task.h chooses among them.
#pragma once

#include <memory>
#include <string>

#include "experiments/training/task.h"

namespace experiments {

std::unique_ptr<Task> make_copy_training(const attnbench::Training& training);
// `data` is the path of a folder that load_images() reads.
std::unique_ptr<Task> make_image_training(const attnbench::Training& training, const std::string& data);
// `data` is the path of a folder that load_speech() reads; empty for made speech.
std::unique_ptr<Task> make_speech_training(const attnbench::Training& training, const std::string& data);
// `data` is the path of a folder that load_text() reads.
std::unique_ptr<Task> make_text_training(const attnbench::Training& training, const std::string& data);

}  // namespace experiments
