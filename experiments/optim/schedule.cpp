// The kinds of learning-rate schedules, and what they store in a checkpoint.
#include "experiments/optim/schedule.h"

#include <c10/util/Exception.h>

#include <cmath>

namespace experiments {
namespace {

using attnbench::Json;

void check_rate(const char* name, double rate) {
  TORCH_CHECK_VALUE(rate > 0 && std::isfinite(rate), name, " = ", rate, ", expected a positive number");
}

}  // namespace

LearningRateSchedule::LearningRateSchedule(const attnbench::Training& training)
    : kind_(training.schedule),
      rate_(training.learning_rate),
      reduced_rate_(training.reduced_learning_rate),
      reduce_after_(training.reduce_after),
      patience_(training.patience) {
  check_rate("learning_rate", rate_);
  if (kind_ == "step") check_rate("reduced_learning_rate", reduced_rate_);
}

void LearningRateSchedule::validated(double error) {
  if (kind_ != "plateau") return;
  if (error < best_) {
    best_ = error;
    not_better_ = 0;
  } else if (++not_better_ > patience_) {
    rate_ /= 2;
    not_better_ = 0;
  }
}

Json LearningRateSchedule::state() const {
  if (kind_ == "step") return {{"schedule", "steps"}};
  if (kind_ != "plateau") return {{"schedule", kind_}};
  return {{"schedule", kind_},
          {"rate", rate_},
          {"best", std::isinf(best_) ? Json() : Json(best_)},  // JSON has no infinity
          {"not_better", not_better_}};
}

void LearningRateSchedule::restore(const Json& state) {
  auto expected = this->state();
  const auto member = [&](const char* key) { return state.is_object() && state.contains(key) ? state[key] : Json("missing"); };
  const auto rate = member("rate"), best = member("best"), not_better = member("not_better");
  bool is_valid = state.is_object() && state.size() == expected.size() && member("schedule") == expected["schedule"];
  if (kind_ == "plateau") {
    is_valid = is_valid && rate.is_number() && rate >= 0 && (best.is_number() || best.is_null()) &&
               not_better.is_number_integer() && not_better >= 0;
    expected.update(
        {{"rate", "a number of at least 0"}, {"best", "a number or null"}, {"not_better", "a whole number of at least 0"}});
  }
  TORCH_CHECK_VALUE(is_valid, "the state of the learning-rate schedule is ", state.dump(), ", expected ", expected.dump());
  if (kind_ != "plateau") return;
  rate_ = rate.get<double>();
  best_ = best.is_null() ? std::numeric_limits<double>::infinity() : best.get<double>();
  not_better_ = not_better.get<int64_t>();
}

}  // namespace experiments
