// The three schedules, and what they store in a checkpoint.
#include "experiments/optim/schedule.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace experiments {
namespace {

using attnbench::Json;

void check_rate(const char* schedule, const char* name, double rate) {
  TORCH_CHECK_VALUE(rate > 0 && std::isfinite(rate), schedule, ": ", name, " = ", rate, ", expected a positive number");
}

// Checks that `state` is an object of this kind of schedule with exactly these keys beside "schedule".
void check_state(const Json& state, const std::string& kind, const std::vector<std::string>& keys) {
  TORCH_CHECK_VALUE(state.is_object() && state.contains("schedule"),
                    "the state of a learning-rate schedule is an object with the key 'schedule', but found ", state.dump());
  TORCH_CHECK_VALUE(state["schedule"] == kind, "the state belongs to a learning-rate schedule of the kind ",
                    state["schedule"].dump(), ", expected \"", kind, "\"");
  for (const auto& key : keys)
    TORCH_CHECK_VALUE(state.contains(key), "the state of the learning-rate schedule '", kind, "' has no '", key, "'");
  for (const auto& [key, value] : state.items())
    TORCH_CHECK_VALUE(key == "schedule" || std::find(keys.begin(), keys.end(), key) != keys.end(),
                      "the state of the learning-rate schedule '", kind, "' has an unknown key '", key, "'");
}

}  // namespace

ConstantRate::ConstantRate(double rate) : rate_(rate) { check_rate("ConstantRate", "rate", rate); }

Json ConstantRate::state() const { return {{"schedule", "constant"}}; }

void ConstantRate::restore(const Json& state) { check_state(state, "constant", {}); }

StepRates::StepRates(double first_rate, std::vector<RateStep> steps) : first_rate_(first_rate), steps_(std::move(steps)) {
  check_rate("StepRates", "first_rate", first_rate);
  int64_t before = 0;
  for (const auto& step : steps_) {
    TORCH_CHECK_VALUE(step.updates > before, "StepRates: a step at ", step.updates, " updates, expected more than ", before);
    check_rate("StepRates", "rate", step.rate);
    before = step.updates;
  }
}

double StepRates::rate(int64_t updates) const {
  double current = first_rate_;
  for (const auto& step : steps_)
    if (updates >= step.updates) current = step.rate;
  return current;
}

Json StepRates::state() const { return {{"schedule", "steps"}}; }

void StepRates::restore(const Json& state) { check_state(state, "steps", {}); }

RateOnPlateau::RateOnPlateau(const PlateauOptions& options) : options_(options), rate_(options.first_rate) {
  check_rate("RateOnPlateau", "first_rate", options.first_rate);
  const auto check = [](const char* name, double value, bool valid, const char* expected) {
    TORCH_CHECK_VALUE(valid, "RateOnPlateau: ", name, " = ", value, ", expected ", expected);
  };
  check("factor", options.factor, options.factor > 0 && options.factor < 1, "a number between 0 and 1");
  check("patience", double(options.patience), options.patience >= 0, "at least 0");
  check("threshold", options.threshold, options.threshold >= 0 && options.threshold < 1, "a number from 0 to below 1");
  check("min_rate", options.min_rate, options.min_rate >= 0 && options.min_rate <= options.first_rate,
        "a number from 0 to first_rate");
}

void RateOnPlateau::validated(double error) {
  // Before the first error best_ is infinite; infinity times 1 − threshold is infinite too.
  if (error < best_ * (1 - options_.threshold)) {
    best_ = error;
    not_better_ = 0;
    return;
  }
  if (++not_better_ <= options_.patience) return;
  rate_ = std::max(rate_ * options_.factor, options_.min_rate);
  not_better_ = 0;
}

Json RateOnPlateau::state() const {
  return {{"schedule", "plateau"},
          {"rate", rate_},
          {"best", std::isinf(best_) ? Json() : Json(best_)},  // JSON has no infinity
          {"not_better", not_better_}};
}

void RateOnPlateau::restore(const Json& state) {
  check_state(state, "plateau", {"rate", "best", "not_better"});
  const auto &rate = state["rate"], &best = state["best"], &not_better = state["not_better"];
  const auto check = [](const char* name, const Json& value, bool valid, const char* expected) {
    TORCH_CHECK_VALUE(valid, "the state of the learning-rate schedule 'plateau' has ", name, " = ", value.dump(), ", expected ",
                      expected);
  };
  check("rate", rate, rate.is_number() && rate.get<double>() >= 0, "a number of at least 0");
  check("best", best, best.is_number() || best.is_null(), "a number or null");
  check("not_better", not_better, not_better.is_number_integer() && not_better.get<int64_t>() >= 0,
        "a whole number of at least 0");
  rate_ = rate.get<double>();
  best_ = best.is_null() ? std::numeric_limits<double>::infinity() : best.get<double>();
  not_better_ = not_better.get<int64_t>();
}

}  // namespace experiments
