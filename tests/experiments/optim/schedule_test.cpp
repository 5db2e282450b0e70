// Tests of learning-rate schedules. tests/python/experiments/test_experiments.py compares them with PyTorch's.
#include "experiments/optim/schedule.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::Json;
using attnbench::message_of;

TEST(ConstantRate, NeverChanges) {
  ConstantRate schedule(0.25);
  schedule.validated(1);
  schedule.validated(2);
  EXPECT_EQ(schedule.rate(0), 0.25);
  EXPECT_EQ(schedule.rate(1'000'000), 0.25);
}

TEST(StepRates, ChangeAfterTheGivenUpdates) {
  const StepRates schedule(1e-3, {{3000, 1e-4}, {5000, 1e-5}});
  EXPECT_EQ(schedule.rate(0), 1e-3);
  EXPECT_EQ(schedule.rate(2999), 1e-3);
  EXPECT_EQ(schedule.rate(3000), 1e-4);
  EXPECT_EQ(schedule.rate(4999), 1e-4);
  EXPECT_EQ(schedule.rate(5000), 1e-5);
}

TEST(RateOnPlateau, HalvesWhenTheErrorStopsFalling) {
  RateOnPlateau schedule({.first_rate = 1, .patience = 1});
  const auto rate_after = [&](double error) {
    schedule.validated(error);
    return schedule.rate(0);
  };
  EXPECT_EQ(rate_after(10), 1);
  EXPECT_EQ(rate_after(9), 1);
  EXPECT_EQ(rate_after(9), 1) << "one validation without progress is within the patience";
  EXPECT_EQ(rate_after(9.5), 0.5);
  EXPECT_EQ(rate_after(9.5), 0.5) << "counting begins again";
  EXPECT_EQ(rate_after(9.5), 0.25);
  EXPECT_EQ(rate_after(8), 0.25);
  EXPECT_EQ(rate_after(std::nan("")), 0.25);
  EXPECT_EQ(rate_after(std::nan("")), 0.125) << "NaN is no progress";
}

TEST(RateOnPlateau, StopsAtTheSmallestRate) {
  RateOnPlateau schedule({.first_rate = 1, .min_rate = 0.3});
  for (int i = 0; i < 5; ++i) schedule.validated(1);
  EXPECT_EQ(schedule.rate(0), 0.3);
}

TEST(RateOnPlateau, GoesOnFromARestoredState) {
  const PlateauOptions options{.first_rate = 1, .patience = 2};
  RateOnPlateau schedule(options);
  EXPECT_TRUE(schedule.state()["best"].is_null());
  for (const double error : {3.0, 4.0, 5.0}) schedule.validated(error);
  RateOnPlateau restored(options);
  restored.restore(attnbench::parse_json(schedule.state().dump()));
  EXPECT_EQ(restored.state(), schedule.state());
  restored.validated(3.5);
  EXPECT_EQ(restored.rate(0), 0.5);
}

TEST(Schedules, RefuseStatesOfOtherKinds) {
  ConstantRate constant(1);
  StepRates steps(1, {});
  RateOnPlateau plateau({});
  constant.restore(constant.state());
  steps.restore(steps.state());
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { constant.restore(steps.state()); }), "\"steps\", expected \"constant\"");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { steps.restore(plateau.state()); }), "\"plateau\", expected \"steps\"");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { plateau.restore(constant.state()); }), "\"constant\", expected \"plateau\"");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { plateau.restore(Json::array()); }), "found []");
  const auto message = [&](const char* key, const Json& value) {
    auto state = plateau.state();
    if (value == "remove") state.erase(key);
    else state[key] = value;
    return message_of<c10::ValueError>([&] { plateau.restore(state); });
  };
  EXPECT_CONTAINS(message("rate", "remove"), "has no 'rate'");
  EXPECT_CONTAINS(message("extra", 1), "unknown key 'extra'");
  EXPECT_CONTAINS(message("rate", "fast"), "rate = \"fast\", expected a number");
  EXPECT_CONTAINS(message("best", true), "best = true");
  EXPECT_CONTAINS(message("not_better", -1), "not_better = -1");
  EXPECT_CONTAINS(message("not_better", 0.5), "not_better = 0.5");
}

TEST(Schedules, RefuseBadOptions) {
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { ConstantRate{0}; }), "rate = 0");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { ConstantRate{INFINITY}; }), "rate = inf");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { StepRates(-1, {}); }), "first_rate = -1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { StepRates(1, {{0, 1}}); }), "a step at 0 updates, expected more than 0");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] {
                    StepRates(1, {{5, 1}, {5, 2}});
                  }),
                  "a step at 5 updates, expected more than 5");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { StepRates(1, {{5, 0}}); }), "rate = 0");
  const auto message = [](const PlateauOptions& options) { return message_of<c10::ValueError>([&] { RateOnPlateau{options}; }); };
  EXPECT_CONTAINS(message({.first_rate = std::nan("")}), "first_rate = nan");
  EXPECT_CONTAINS(message({.factor = 1}), "factor = 1");
  EXPECT_CONTAINS(message({.patience = -1}), "patience = -1");
  EXPECT_CONTAINS(message({.threshold = 1}), "threshold = 1");
  EXPECT_CONTAINS(message({.first_rate = 1, .min_rate = 2}), "min_rate = 2");
}

}  // namespace
}  // namespace experiments
