// Task: what a training teaches. It owns the model and the data; the trainer owns the optimizer and the loop.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "harness/schema/json.h"
#include "harness/schema/training.h"

namespace experiments {

class Task {
 public:
  virtual ~Task() = default;

  virtual torch::nn::Module& model() = 0;
  // The implementation of the attention that the last forward ran, such as "kernel/avx512", or of the recurrent network.
  virtual std::string implementation() const = 0;

  // Sets the seed of the random numbers that the attention method draws, such as the rotations of LSH attention.
  virtual void set_method_seed(uint64_t seed) = 0;

  // The loss of the next batch of training data, a scalar with gradients. `update` is the number of this update, from 1.
  virtual at::Tensor loss(int64_t update, at::Generator& generator) = 0;

  // Measures the model on data that is not trained on. Returns validation_loss and other columns of training_columns(). Draws no
  // random numbers from the training's generators. The model is in evaluation mode, and no gradients are recorded.
  virtual attnbench::Json validate() = 0;
  // The number of updates that use every item of the training data once; 0 for a task that draws new data for every update. A
  // training may report another size of its epochs, see Training::epoch_items.
  virtual int64_t updates_per_epoch() const { return 0; }
};

// `data` is the path of the data's folder, which Training::data says in the words of the settings file; empty if the task makes
// its data. Throws std::invalid_argument for an unknown task, and what the models and loaders throw.
std::unique_ptr<Task> make_task(const attnbench::Training& training, const std::string& data = {});

}  // namespace experiments
