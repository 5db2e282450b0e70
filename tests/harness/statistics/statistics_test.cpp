// Tests of quantiles and verdicts against values computed by hand. test_statistics.py compares the other functions with SciPy,
// and coverage_test.cpp tests the intervals.
#include "harness/statistics/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "harness/statistics/comparison.h"

namespace attnbench {
namespace {

using Numbers = std::vector<double>;

TEST(Quantile, InterpolatesBetweenOrderStatistics) {
  const Numbers four = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(quantile(four, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(four, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile(four, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(four, 0.75), 3.25);
  EXPECT_DOUBLE_EQ(quantile(four, 1), 4);
  const Numbers uneven = {0, 10, 100, 1000, 10000};
  EXPECT_DOUBLE_EQ(quantile(uneven, 0.5), 100);
  EXPECT_DOUBLE_EQ(quantile(uneven, 0.1), 4);
  EXPECT_DOUBLE_EQ(quantile(uneven, 0.9), 6400);
  EXPECT_DOUBLE_EQ(quantile(Numbers{7}, 0), 7);
  EXPECT_DOUBLE_EQ(quantile(Numbers{7}, 0.3), 7);
  EXPECT_DOUBLE_EQ(quantile(Numbers{7}, 1), 7);
}

TEST(Median, TakesUnsortedSamples) {
  EXPECT_DOUBLE_EQ(median({3}), 3);
  EXPECT_DOUBLE_EQ(median({5, 1, 100}), 5);
  EXPECT_DOUBLE_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median({2, 2, 1, 9, 2}), 2);
}

TEST(OrderStatisticInterval, IsTheRangeOfFewerThanSixValues) {
  const auto range = [](double low, double high) { return Interval{low, high}; };
  EXPECT_EQ(order_statistic_interval({3}), range(3, 3));
  EXPECT_EQ(order_statistic_interval({3, 1}), range(1, 3));
  EXPECT_EQ(order_statistic_interval({5, 1, 2, 9, 4}), range(1, 9));
}

TEST(OrderStatisticInterval, LiesBetweenTheOrderStatisticsWhoseCoverageIsNearest) {
  // The ranges of 8 values from the 1st to the 8th and from the 2nd to the 7th cover 99.22 % and 92.97 %.
  const auto interval = order_statistic_interval({10, 20, 30, 40, 50, 60, 70, 80});
  const double part = (0.9921875 - 0.95) / (0.9921875 - 0.9296875), weight = 7 * part / (1 + 6 * part);
  EXPECT_NEAR(interval.low, 10 + 10 * weight, 1e-9);
  EXPECT_NEAR(interval.high, 80 - 10 * weight, 1e-9);
}

TEST(OrderStatisticInterval, CoversTheMedianIn95PercentOfTrials) {
  std::mt19937_64 random(7);
  constexpr int kTrials = 20'000;
  for (const size_t n : {6, 8, 9, 12, 25}) {
    int normal = 0, skewed = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      Numbers x(n), y(n);
      for (auto& value : x) value = std::normal_distribution<double>()(random);
      for (auto& value : y) value = std::exponential_distribution<double>()(random);
      const auto a = order_statistic_interval(x), b = order_statistic_interval(y);
      normal += a.low <= 0 && 0 <= a.high ? 1 : 0;
      skewed += b.low <= std::log(2.0) && std::log(2.0) <= b.high ? 1 : 0;
    }
    EXPECT_NEAR(double(normal) / kTrials, 0.95, 0.006) << n;
    EXPECT_NEAR(double(skewed) / kTrials, 0.95, 0.006) << n;
  }
}

TEST(ProcessesToDecide, AreTheFewestWhoseSmallestPValueIsBelowTheLevel) {
  // The smallest p values are 2/C(8, 4) = 0.0286, 2/C(10, 5) = 0.0079, 2/C(16, 8) = 1/6435 and 2/C(18, 9) = 1/24310.
  EXPECT_EQ(processes_to_decide(1), 5);
  EXPECT_EQ(processes_to_decide(12), 7);
  EXPECT_EQ(processes_to_decide(64), 8);
  EXPECT_EQ(processes_to_decide(65), 9);
  EXPECT_EQ(processes_to_decide(243), 9);
  EXPECT_EQ(processes_to_decide(244), 10);
  EXPECT_FALSE(can_decide(5, 5, 12));
  EXPECT_TRUE(can_decide(5, 12, 12));
}

TEST(ProcessesToDecide, AgreesWithTheVerdicts) {
  const auto verdict = [](size_t processes) {
    std::vector<TwoSides> cases(12);
    for (size_t i = 0; i < cases.size(); ++i)
      for (size_t j = 0; j < processes; ++j) {
        cases[i].a.push_back(1 + 0.001 * double(j));
        cases[i].b.push_back((i == 0 ? 2 : 1) + 0.001 * double(j) + 0.0001);
      }
    return judge(cases)[0].verdict;
  };
  EXPECT_EQ(verdict(5), Verdict::inconclusive);
  EXPECT_EQ(verdict(6), Verdict::inconclusive);
  EXPECT_EQ(verdict(7), Verdict::regression);
}

}  // namespace
}  // namespace attnbench
