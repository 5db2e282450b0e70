// Tests of the rates that are estimated from resampled suites, on made-up measurements.
#include "harness/gate/resampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/text/errors.h"
#include "tests/harness/gate/drawn_pairs.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

TEST(GateErrorRates, CountTheVerdictsOfResampledSuites) {
  Ratios draw(4);
  std::vector<std::vector<double>> pools;
  for (int i = 0; i < 6; ++i) pools.push_back(draw.around(i == 0 ? 1.2 : 1, 0.01, 400));
  const auto rates = resample_gate(pools, {}, 200, 1);
  EXPECT_EQ(rates.any_regression, 1);
  EXPECT_EQ(rates.regression, (std::vector<double>{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(rates.pass, (std::vector<double>{0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(rates.any_inconclusive, 0);
  EXPECT_EQ(rates.trials, 200);
  EXPECT_NEAR(rates.mean_pairs, (12 + 5 * 8) / 6.0, 0.01);
}

TEST(GateErrorRates, ASlowdownIsFoundAndIsInconclusiveWhenTheNoiseHidesIt) {
  Ratios draw(5);
  const std::vector<std::vector<double>> slower = {draw.around(1.1, 0.03, 200)}, noisy = {draw.around(1.1, 0.8, 200)};
  EXPECT_GE(resample_gate(slower, {}, 500, 1).regression[0], 0.97);
  const auto hidden = resample_gate(noisy, {}, 500, 1);
  EXPECT_LE(hidden.regression[0], 0.1);
  EXPECT_GE(hidden.inconclusive[0], 0.8) << "a slowdown that the noise hides does not pass";
  EXPECT_EQ(resample_gate(noisy, {}, 200, 7).regression[0], resample_gate(noisy, {}, 200, 7).regression[0]);
}

TEST(GateErrorRates, TooFewRecordingsAreRefused) {
  EXPECT_CONTAINS(message_of<UsageError>([&] { resample_gate({std::vector<double>(10, 0.0)}, {}, 1, 1); }),
                  "10 recordings, expected at least 20");
}

// The pairs of a trial have independent signs even if nearly all recorded pairs are drawn, so that the noise does not cancel.
TEST(GateErrorRates, DoNotDependOnHowManyEqualPairsWereRecorded) {
  constexpr int kTrials = 8000;
  GatePlan plan;
  plan.criteria.alpha = 0.2;  // with a rarer alarm, more trials would be needed
  const auto alarms = [&](int recordings) {
    const std::vector<double> equal(size_t(recordings), std::log(1.2));
    return suite_curve({equal}, plan, {3}, kTrials, 1).regression[0];
  };
  const double expected = alarms(500);
  EXPECT_GT(expected, 0.05);
  EXPECT_NEAR(alarms(20), expected, 4 * std::sqrt(2 * expected * (1 - expected) / kTrials));
}

TEST(GateErrorRates, PairsOfEqualBuildsHaveEitherSign) {
  const std::vector<std::vector<double>> slower = {std::vector<double>(20, std::log(1.2))};
  EXPECT_EQ(resample_gate(slower, {}, 50, 1).any_regression, 1);
  EXPECT_LE(resample_gate(slower, {}, 50, 1, Signs::either).any_regression, 0.2);
}

TEST(GatePower, RisesFromFalseAlarmsToEverySlowdown) {
  Ratios draw(9);
  const auto equal = draw.around(1, 0.015, 200);
  const auto curve = power_curve(equal, 6, {}, 400, 1);
  ASSERT_EQ(curve.slowdown_percent.size(), 15);
  EXPECT_EQ(curve.slowdown_percent.front(), 1);
  EXPECT_EQ(curve.slowdown_percent.back(), 15);
  for (size_t k = 0; k < 15; ++k) EXPECT_NEAR(curve.regression[k] + curve.pass[k] + curve.inconclusive[k], 1, 1e-9);
  for (size_t k = 0; k < 3; ++k) EXPECT_LE(curve.regression[k], 0.01) << "slower by at most min_shift";
  for (size_t k = 9; k < 15; ++k) EXPECT_LE(curve.pass[k], highest_likely(0.025, 400)) << "slower by the margin or more";
  EXPECT_TRUE(std::is_sorted(curve.regression.begin(), curve.regression.end())) << "the draws are the same for each slowdown";
  EXPECT_GE(curve.regression[9], 0.95);
  // The more cases, the smaller the share of the level that one case gets.
  EXPECT_LT(power_curve(equal, 60, {}, 400, 1).regression[4], curve.regression[4]);
}

// The curve of a quick gate on six cases, whose log ratios have a standard deviation of 2 %.
SuiteCurve quick_curve(const std::vector<double>& slowdown_percent, int trials) {
  Ratios draw(20);
  std::vector<std::vector<double>> equal(6);
  for (auto& of_case : equal) of_case = draw.around(1, 0.02, 400);
  GatePlan plan;
  plan.is_quick = true;
  return suite_curve(equal, plan, slowdown_percent, trials, 1);
}

TEST(QuickGatePower, FalseAlarmsAreRareAndLargeSlowdownsAreFoundWithFewPairs) {
  constexpr int kTrials = 1200;
  const auto curve = quick_curve({0, 3, 5, 10, 20}, kTrials);
  const auto &found = curve.regression, &passed = curve.pass, &pairs = curve.mean_pairs;
  for (size_t k = 0; k < 5; ++k) EXPECT_NEAR(found[k] + passed[k] + curve.inconclusive[k], 1, 1e-9);
  // No slowdown: no alarm, and the suite passes after six pairs of each case, unless some pairs stray.
  EXPECT_LE(found[0], highest_likely(0.01, kTrials));
  EXPECT_GE(passed[0], 0.95);
  EXPECT_NEAR(pairs[0], 36, 2);
  // 3 % is the edge of the hypothesis, so that a regression is still a false alarm.
  EXPECT_LE(found[1], highest_likely(0.01, kTrials));
  // Between 3 and 10 % either verdict is right.
  EXPECT_GT(found[2], found[1]);
  // From 10 % on, a pass is an error.
  EXPECT_LE(passed[3], highest_likely(0.025, kTrials));
  EXPECT_GE(found[3], 0.9);
  EXPECT_EQ(passed[4], 0);
  EXPECT_GE(found[4], 0.99);
  EXPECT_LT(pairs[4], 26) << "two or three pairs of each case, and the rest of the ten pairs of the slower one";
}

TEST(QuickGatePower, EveryCaseIsTheSlowerOneInTurn) {
  Ratios draw(22);
  GatePlan plan;
  plan.is_quick = true;
  const auto curve = suite_curve({draw.around(1, 0.8, 200), draw.around(1, 0.01, 200)}, plan, {20}, 100, 1);
  EXPECT_NEAR(curve.regression[0], 0.5, 0.02) << "the noise of the first case hides its slowdown";
}

TEST(QuickGatePower, AFullGateCanBeAskedForTheSameCurve) {
  Ratios draw(21);
  const std::vector<std::vector<double>> equal(2, draw.around(1, 0.01, 200));
  const auto curve = suite_curve(equal, {}, {0, 20}, 50, 1);
  EXPECT_EQ(curve.regression, (std::vector<double>{0, 1}));
  EXPECT_NEAR(curve.mean_pairs[0], 16, 1e-9);
  EXPECT_NEAR(curve.mean_pairs[1], 20, 1e-9);
}

TEST(QuickGatePower, TooFewRecordingsAreRefused) {
  GatePlan plan;
  plan.is_quick = true;
  const std::vector<std::vector<double>> equal(6, std::vector<double>(13, 0.0));
  EXPECT_CONTAINS(message_of<UsageError>([&] { resample_gate(equal, plan, 1, 1); }), "13 recordings, expected at least 14");
}

}  // namespace
}  // namespace attnbench
