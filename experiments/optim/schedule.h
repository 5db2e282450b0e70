// Learning-rate schedules. A training asks for the rate before each update, and reports each validation error:
//
//   set_learning_rate(optimizer, schedule.rate(updates));  // experiments/optim/radam.h
//   …
//   schedule.validated(error);
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "harness/schema/json.h"

namespace experiments {

class LearningRateSchedule {
 public:
  virtual ~LearningRateSchedule() = default;
  // The learning rate of the update that follows `updates` ≥ 0 updates.
  virtual double rate(int64_t updates) const = 0;
  // Takes note of a validation error. Most schedules do not depend on it.
  virtual void validated(double error) { (void)error; }
  // What a checkpoint has to store to go on with this schedule: an object with the key "schedule", which is the kind of the
  // schedule, and what it remembers.
  virtual attnbench::Json state() const = 0;
  // Sets what state() gave. Throws c10::ValueError for the state of another kind of schedule and for a key that is missing,
  // unknown or of another type; the schedule is then unchanged.
  virtual void restore(const attnbench::Json& state) = 0;
};

// The same rate always.
class ConstantRate : public LearningRateSchedule {
 public:
  // Throws c10::ValueError unless the rate is positive and finite.
  explicit ConstantRate(double rate);
  double rate(int64_t) const override { return rate_; }
  attnbench::Json state() const override;
  void restore(const attnbench::Json& state) override;

 private:
  double rate_;
};

// A change of the rate: the updates that follow at least `updates` updates have this rate.
struct RateStep {
  int64_t updates;
  double rate;
};

// Rates that change at given updates. StepRates(1e-3, {{3000, 1e-4}}) gives 1e-3 to the first 3000 updates and 1e-4 to all later
// ones.
class StepRates : public LearningRateSchedule {
 public:
  // Throws c10::ValueError unless rates are positive and finite and the steps are at increasing numbers of updates from 1.
  StepRates(double first_rate, std::vector<RateStep> steps);
  double rate(int64_t updates) const override;
  attnbench::Json state() const override;
  void restore(const attnbench::Json& state) override;

 private:
  double first_rate_;
  std::vector<RateStep> steps_;
};

struct PlateauOptions {
  double first_rate = 1e-4;
  double factor = 0.5;   // by which the rate is multiplied, between 0 and 1
  int64_t patience = 0;  // the number of validations in a row that may be no better than the best before the rate changes
  double threshold = 0;  // the share of the best error by which an error must be below it to be better
  double min_rate = 0;   // the rate is never set below this
};

// Multiplies the rate by a factor when the validation error has stopped falling, as torch.optim.lr_scheduler.ReduceLROnPlateau
// does with threshold_mode="rel": it does so at the validation that is number patience + 1 in a row that is not better than the
// best, and then counts from zero again. An error that is NaN is not better.
class RateOnPlateau : public LearningRateSchedule {
 public:
  // Throws c10::ValueError for an option out of range.
  explicit RateOnPlateau(const PlateauOptions& options);
  double rate(int64_t) const override { return rate_; }
  void validated(double error) override;
  // "rate", "best" (null before the first error that is not NaN) and "not_better", the number of validations in a row that were
  // not better.
  attnbench::Json state() const override;
  void restore(const attnbench::Json& state) override;

 private:
  PlateauOptions options_;
  double rate_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t not_better_ = 0;
};

}  // namespace experiments
