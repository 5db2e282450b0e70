// The learning rate of a training. It asks for the rate before each update, and reports each validation error:
//
//   set_learning_rate(optimizer, schedule.rate(updates));  // experiments/optim/radam.h
//   …
//   schedule.validated(error);
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "harness/schema/json.h"
#include "harness/schema/training.h"

namespace experiments {

// The kinds are those of Training::schedule:
//   constant  learning_rate always
//   step      learning_rate for the first reduce_after updates, and reduced_learning_rate for all later ones
//   plateau   learning_rate, which is halved when the validation error has stopped falling, as
//             torch.optim.lr_scheduler.ReduceLROnPlateau does with factor=0.5 and threshold=0: at the validation that is number
//             patience + 1 in a row that is not better than the best, after which it counts from zero again. An error that is NaN
//             is not better.
class LearningRateSchedule {
 public:
  // Throws c10::ValueError unless the rates that the schedule uses are positive and finite.
  explicit LearningRateSchedule(const attnbench::Training& training);

  // The learning rate of the update that follows `updates` ≥ 0 updates.
  double rate(int64_t updates) const { return kind_ == "step" && updates >= reduce_after_ ? reduced_rate_ : rate_; }
  // Takes note of a validation error, on which only "plateau" depends.
  void validated(double error);

  // What a checkpoint stores to go on with this schedule: an object with the key "schedule", which is the kind ("steps" for
  // step), and for plateau "rate", "best" (null before the first error that is not NaN) and "not_better", the number of
  // validations in a row that were not better.
  attnbench::Json state() const;
  // Sets what state() gave. Throws c10::ValueError for the state of another kind of schedule and for a key that is missing,
  // unknown or of another type; the schedule is then unchanged.
  void restore(const attnbench::Json& state);

 private:
  std::string kind_;
  double rate_, reduced_rate_;
  int64_t reduce_after_, patience_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t not_better_ = 0;
};

}  // namespace experiments
