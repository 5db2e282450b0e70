// Tests of the verdicts different, equivalent and cannot tell.
#include "harness/statistics/equivalence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

namespace attnbench {
namespace {

using Numbers = std::vector<double>;

// `count` distinct values in steps of `step`, relative to `first`.
Numbers steps(double first, double step, int count) {
  Numbers values;
  for (int i = 0; i < count; ++i) values.push_back(first * (1 + step * i));
  return values;
}

Finding finding(const Numbers& a, const Numbers& b, EquivalenceCriteria criteria = {}) {
  return compare_sides({{a, b}}, criteria)[0].finding;
}

TEST(Equivalence, TheVerdictDependsOnTheShiftAndTheNoise) {
  const auto a = steps(10, 0.001, 8);
  EXPECT_EQ(finding(a, steps(10.01, 0.001, 8)), Finding::equivalent);
  EXPECT_EQ(finding(a, steps(11, 0.001, 8)), Finding::slower);
  EXPECT_EQ(finding(steps(11, 0.001, 8), a), Finding::faster);
  EXPECT_EQ(finding(steps(10, 0.05, 8), steps(10.01, 0.05, 8)), Finding::cannot_tell);
}

TEST(Equivalence, ASignificantShiftWithinTheBoundIsEquivalent) {
  const auto a = steps(10, 0.001, 8), b = steps(10.2, 0.001, 8);
  const auto compared = compare_sides({{a, b}})[0];
  EXPECT_LT(compared.adjusted_p, 0.01);
  EXPECT_EQ(compared.finding, Finding::equivalent);
  EXPECT_EQ(finding(a, b, {.within = 0.01}), Finding::slower);
}

TEST(Equivalence, ThePercentageIsTheSameInBothDirections) {
  const auto a = steps(10, 1e-6, 8);
  EXPECT_EQ(finding(a, steps(10.29, 1e-6, 8)), Finding::equivalent);
  EXPECT_EQ(finding(steps(10.29, 1e-6, 8), a), Finding::equivalent);
  EXPECT_EQ(finding(a, steps(10.31, 1e-6, 8)), Finding::slower);
  EXPECT_EQ(finding(steps(10.31, 1e-6, 8), a), Finding::faster);
}

TEST(Equivalence, TheValuesOfAnEstimateDivideToIt) {
  // Most processes of both sides take equally long, but the medians do not.
  const Numbers a = {1, 1, 1, 1.1, 1.1}, b = {1, 1, 1.1, 1.1, 1.1};
  const auto estimate = estimate_ratio({a, b}).ratio.estimate;
  EXPECT_GT(std::abs(std::log(median(b) / median(a)) - estimate), 0.05);
  const auto values = values_of_estimate(median(a), median(b), estimate);
  EXPECT_NEAR(std::log(values.b / values.a), estimate, 1e-12);
  EXPECT_NEAR(values.a * values.b, median(a) * median(b), 1e-12);
  // Medians that agree with the estimate stay as they are, also where their product is too large for a number.
  const auto same = values_of_estimate(1e200, 2e200, std::log(2));
  EXPECT_NEAR(same.a / 1e200, 1, 1e-12);
  EXPECT_NEAR(same.b / 2e200, 1, 1e-12);
}

TEST(Equivalence, TheIntervalThatDecidesIsNamedByItsLevel) {
  const auto estimate = estimate_ratio({steps(10, 0.004, 8), steps(10.03, 0.004, 8)});
  const auto equivalent = decisive_interval(estimate, Finding::equivalent);
  EXPECT_EQ(equivalent.percent, 90);
  EXPECT_EQ(equivalent.interval, estimate.equivalence);
  for (const auto finding : {Finding::slower, Finding::faster, Finding::cannot_tell}) {
    EXPECT_EQ(decisive_interval(estimate, finding).percent, 95);
    EXPECT_EQ(decisive_interval(estimate, finding).interval, estimate.ratio.interval);
  }
  EXPECT_EQ(decisive_interval(estimate_ratio({steps(10, 0.004, 3), steps(10, 0.004, 3)}), Finding::cannot_tell).percent, 0);
}

TEST(Equivalence, TheNinetyPercentIntervalDecides) {
  const auto a = steps(10, 0.004, 8), b = steps(10.03, 0.004, 8);
  const auto estimate = estimate_ratio({a, b});
  // A bound between the ends of both intervals.
  ASSERT_LT(estimate.equivalence.high, estimate.ratio.interval.high);
  const double within = std::expm1((estimate.equivalence.high + estimate.ratio.interval.high) / 2);
  EXPECT_EQ(finding(a, b, {.within = within}), Finding::equivalent);
  EXPECT_EQ(finding(a, b, {.within = std::expm1(estimate.equivalence.high * 0.99)}), Finding::cannot_tell);
}

// Two one-sided tests at 5 %: sides that are exactly at the bound are called equivalent in at most 5 % of all trials.
TEST(Equivalence, IsFoundWronglyInAtMostFivePercent) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0, 0.01);
  constexpr int kTrials = 4000;
  int wrong = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Numbers a, b;
    for (int i = 0; i < 8; ++i) {
      a.push_back(std::exp(noise(random)));
      b.push_back(1.03 * std::exp(noise(random)));
    }
    wrong += finding(a, b) == Finding::equivalent ? 1 : 0;
  }
  EXPECT_LE(double(wrong) / kTrials, 0.055);
  EXPECT_GE(double(wrong) / kTrials, 0.03) << "the test is of no use if it never finds equivalence";
}

TEST(Equivalence, ThreeProcessesASideCanBeEquivalentButNotDifferent) {
  const auto same = compare_sides({{steps(10, 0.001, 3), steps(10.001, 0.001, 3)}})[0];
  EXPECT_EQ(same.finding, Finding::equivalent);
  EXPECT_FALSE(same.can_differ);
  EXPECT_EQ(finding(steps(10, 0.001, 3), steps(20, 0.001, 3)), Finding::cannot_tell);
  // With two processes a side, no interval has 90 %.
  EXPECT_EQ(finding(steps(10, 0.001, 2), steps(10.001, 0.001, 2)), Finding::cannot_tell);
}

TEST(Equivalence, TwelveCasesNeedSevenProcesses) {
  const auto compared = [](int processes) {
    std::vector<TwoSides> cases(12, {steps(10, 0.001, processes), steps(10.001, 0.001, processes)});
    cases[0].b = steps(20, 0.001, processes);
    return compare_sides(cases)[0];
  };
  EXPECT_EQ(compared(5).finding, Finding::cannot_tell);
  EXPECT_FALSE(compared(5).can_differ);
  EXPECT_EQ(compared(7).finding, Finding::slower);
  EXPECT_TRUE(compared(7).can_differ);
}

TEST(Equivalence, OneProcessHasNoIntervalAndNoVerdict) {
  const auto compared = compare_sides({{{10}, {10}}, {{10}, steps(20, 0.001, 400)}});
  for (const auto& c : compared) {
    EXPECT_EQ(c.finding, Finding::cannot_tell);
    EXPECT_EQ(c.estimate.scope, IntervalScope::none);
    EXPECT_FALSE(c.can_differ);
  }
}

TEST(RatioEstimate, FewerThanSixProcessesHaveARange) {
  const auto few = estimate_ratio({{10, 11}, {20, 24, 22}});
  EXPECT_EQ(few.scope, IntervalScope::range_of_processes);
  EXPECT_EQ(few.processes, 2u);
  EXPECT_DOUBLE_EQ(few.ratio.interval.low, std::log(20.0 / 11));
  EXPECT_DOUBLE_EQ(few.ratio.interval.high, std::log(24.0 / 10));
  EXPECT_FALSE(excludes_equality(few));
  const auto enough = estimate_ratio({steps(10, 0.001, 6), steps(20, 0.001, 6)});
  EXPECT_EQ(enough.scope, IntervalScope::across_processes);
  EXPECT_EQ(enough.ratio.interval, log_ratio(steps(10, 0.001, 6), steps(20, 0.001, 6)).interval);
  EXPECT_TRUE(excludes_equality(enough));
}

TEST(RatioEstimate, PairsUseTheSignedRankInterval) {
  const Numbers logs = {0.50, 0.51, 0.52, 0.53, 0.54, 0.56, 0.57};
  const auto estimate = estimate_paired_ratio(logs);
  EXPECT_EQ(estimate.scope, IntervalScope::across_processes);
  EXPECT_EQ(estimate.ratio.interval, paired_log_ratio(logs).interval);
  EXPECT_EQ(estimate.equivalence, paired_log_ratio(logs, 0.90).interval);
  const auto few = estimate_paired_ratio(Numbers{0.3, 0.1, 0.2});
  EXPECT_EQ(few.scope, IntervalScope::range_of_processes);
  EXPECT_EQ(few.ratio.interval, (Interval{0.1, 0.3}));
  EXPECT_EQ(estimate_paired_ratio(Numbers{0.3}).scope, IntervalScope::none);
}

TEST(Equivalence, TheFindingOverAllCasesIsTheMostImportantOne) {
  using enum Finding;
  EXPECT_EQ(overall_finding({equivalent, cannot_tell, slower, faster}), slower);
  EXPECT_EQ(overall_finding({equivalent, faster, cannot_tell}), cannot_tell);
  EXPECT_EQ(overall_finding({equivalent, faster}), faster);
  EXPECT_EQ(overall_finding({equivalent}), equivalent);
  EXPECT_EQ(overall_finding({}), cannot_tell);
}

TEST(Equivalence, CanBeInterrupted) {
  const auto stop = [] { throw std::runtime_error("stop"); };
  EXPECT_THROW(compare_sides({{{1}, {1}}}, {}, stop), std::runtime_error);
}

}  // namespace
}  // namespace attnbench
