// Trainer: updates the weights of a task's model, records its curve, and writes and reads checkpoints.
//
//   Trainer trainer(training);
//   while (!trainer.is_done()) {
//     trainer.update();
//     if (trainer.is_point()) trainer.record_point();
//   }
#pragma once

#include <ATen/core/Generator.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/optim/schedule.h"
#include "experiments/training/checkpoint.h"
#include "experiments/training/task.h"
#include "harness/schema/json.h"
#include "harness/schema/training.h"

namespace experiments {

// A loss that is NaN or infinite. Training cannot go on from the weights that gave it.
struct NotFinite : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A checkpoint, and what it says of its training.
struct SavedTraining {
  attnbench::Training training;
  std::string data;  // the path of the data's folder
  int64_t updates = 0;
  Checkpoint checkpoint;
};
// Throws std::runtime_error that names the file if it is not a checkpoint of a training.
SavedTraining load_training(const std::string& path);

// Copies the weights of a training's checkpoint to a model. Throws std::runtime_error that names a tensor that is missing or has
// another shape or dtype.
void restore_weights(torch::nn::Module& model, const Checkpoint& checkpoint);

class Trainer {
 public:
  // Sets PyTorch's number of threads and the seed of its generator, from which the weights are drawn. `data` is the path of the
  // data's folder. Throws what make_task() throws.
  explicit Trainer(const attnbench::Training& training, const std::string& data = {});

  // The trainer as it was when it wrote this checkpoint. `data` replaces the path of the data's folder if it is not empty. Throws
  // std::runtime_error that names the file, and what the constructor throws.
  static std::unique_ptr<Trainer> from_checkpoint(const std::string& path, const std::string& data = {});

  const attnbench::Training& training() const { return training_; }
  // The number of updates so far.
  int64_t updates() const { return updates_; }
  // Whether all updates are made, the time is over, or the learning rate has fallen below its minimum.
  bool is_done() const;
  // Whether the curve has a point after the last update.
  bool is_point() const { return updates_ % training_.validate_every == 0 || is_done(); }
  double updates_per_s() const;
  double last_loss() const { return last_loss_; }
  // The wall time of all updates so far, in seconds.
  double training_s() const { return training_s_; }

  // Makes one update. Throws NotFinite, and leaves the weights as they were, if the loss is NaN or infinite.
  void update();

  // The columns that the task's validation of the model gives, such as validation_loss.
  attnbench::Json validate();
  // Validates the model, and adds a point to the curve. A point has the columns of training_columns().
  const attnbench::Json& record_point();
  const std::vector<attnbench::Json>& curve() const { return curve_; }

  // What is recorded of the training at its end, without its outcome: the last point.
  attnbench::Json summary() const;

  // Both throw std::runtime_error that names the file. load() refuses a checkpoint of another configuration and names the fields
  // that differ, except `updates`, which may have grown. After load() the training goes on exactly as it would have after save().
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  void restore(const Checkpoint& checkpoint, const std::string& path);

  attnbench::Training training_;
  std::string data_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  LearningRateSchedule schedule_;
  at::Generator data_generator_;
  int64_t updates_ = 0;
  double training_s_ = 0, last_loss_ = 0, last_learning_rate_ = 0;
  // Since the last point.
  double interval_s_ = 0, interval_loss_ = 0;
  int64_t interval_updates_ = 0;
  std::vector<attnbench::Json> curve_;
};

}  // namespace experiments
