// Tests of the search for changes: its distribution against one that is counted, what it finds, and how often it finds something
// where nothing changes.
#include "harness/statistics/change_points.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace attnbench {
namespace {

TEST(ChangePoints, TheTailIsThatOfAllOrders) {
  // All orders of three and four values, of which a mask says which belong to the second sample.
  constexpr size_t m = 3, n = 4;
  for (size_t u = 0; u <= m * n + 1; ++u) {
    int all = 0, tail = 0;
    for (unsigned mask = 0; mask < 1U << (m + n); ++mask) {
      if (size_t(__builtin_popcount(mask)) != n) continue;
      size_t pairs = 0, first = 0;
      for (size_t i = 0; i < m + n; ++i)
        if (mask >> i & 1U) pairs += first;
        else ++first;
      ++all;
      tail += pairs >= u ? 1 : 0;
    }
    EXPECT_NEAR(mann_whitney_tail(m, n, u), double(tail) / all, 1e-12) << u;
  }
  EXPECT_NEAR(mann_whitney_tail(40, 7, 280) * 62'891'499, 1, 1e-6);
}

using Noise = std::function<double(std::mt19937_64&)>;
const Noise kNormal = [](std::mt19937_64& random) { return std::normal_distribution<double>(0, 0.02)(random); };
// A machine that is sometimes half as fast, and otherwise quiet.
const Noise kOutliers = [](std::mt19937_64& random) {
  return std::bernoulli_distribution(0.1)(random) ? 0.7 : std::normal_distribution<double>(0, 0.005)(random);
};

std::vector<double> series_of(size_t count, const Noise& noise, std::mt19937_64& random, size_t change = 0, double factor = 1) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) values.push_back((change > 0 && i >= change ? factor : 1) * std::exp(noise(random)));
  return values;
}

TEST(ChangePoints, AStepIsFoundWhereItIs) {
  std::mt19937_64 random(1);
  for (const double factor : {1.2, 1 / 1.2}) {
    const auto changes = change_points(series_of(300, kNormal, random, 200, factor), 299 * 100);
    ASSERT_EQ(changes.size(), 1);
    EXPECT_EQ(changes[0].at, 200);
    EXPECT_NEAR(changes[0].ratio.estimate, std::log(factor), 0.02);
    EXPECT_LT(changes[0].ratio.interval.low, std::log(factor));
    EXPECT_GT(changes[0].ratio.interval.high, std::log(factor));
    EXPECT_LT(changes[0].p, 0.01);
  }
}

TEST(ChangePoints, SeveralStepsAreFoundInOrder) {
  std::mt19937_64 random(2);
  auto values = series_of(300, kNormal, random, 100, 1.3);
  for (size_t i = 200; i < 300; ++i) values[i] *= 0.6;
  const auto changes = change_points(values, values.size() - 1);
  ASSERT_EQ(changes.size(), 2);
  EXPECT_EQ(changes[0].at, 100);
  EXPECT_EQ(changes[1].at, 200);
  EXPECT_GT(changes[0].ratio.estimate, 0);
  EXPECT_LT(changes[1].ratio.estimate, 0);
}

TEST(ChangePoints, SevenValuesAfterAStepAreEnoughAmongAHundredThousandPlaces) {
  std::mt19937_64 random(3);
  const auto values = series_of(1007, kNormal, random, 1000, 1.5);
  ASSERT_EQ(change_points(values, 100'000).size(), 1);
  EXPECT_EQ(change_points(values, 100'000)[0].at, 1000);
  EXPECT_TRUE(change_points(std::span(values).first(1006), 100'000).empty());
}

TEST(ChangePoints, ValuesWithoutNoiseAndSmallChangesAndShortSeries) {
  std::vector<double> values(60, 4096.0);
  EXPECT_TRUE(change_points(values, 59).empty());
  for (size_t i = 30; i < 60; ++i) values[i] = 4096 * 1.02;
  EXPECT_TRUE(change_points(values, 59).empty()) << "within min_shift";
  EXPECT_EQ(change_points(values, 59, {.min_shift = 0.01}).size(), 1);
  EXPECT_TRUE(change_points(std::vector<double>{}, 1).empty());
  EXPECT_TRUE(change_points(std::vector<double>{1}, 1).empty());
  EXPECT_TRUE(change_points(std::vector<double>{1, 2}, 1).empty());
}

// The bound holds for the edge of the null, too: changes of min_shift itself.
TEST(ChangePoints, HistoriesWithoutChangesSeldomHaveAny) {
  constexpr int kHistories = 300, kSeries = 10;
  constexpr size_t kValues = 100;
  for (const auto& [noise, factor] : {std::pair(kNormal, 1.0), {kOutliers, 1.0}, {kNormal, 1.03}}) {
    std::mt19937_64 random(4);
    int any = 0;
    for (int h = 0; h < kHistories; ++h) {
      bool found = false;
      for (int s = 0; s < kSeries; ++s)
        found = !change_points(series_of(kValues, noise, random, 50, factor), kSeries * (kValues - 1)).empty() || found;
      any += found ? 1 : 0;
    }
    // With a probability of 1 % for each history, more than 10 of 300 have a probability of 0.02 %.
    EXPECT_LE(any, 10) << factor;
  }
}

// That the test above can fail: noise that follows itself has no bound.
TEST(ChangePoints, DriftIsTakenForChanges) {
  std::mt19937_64 random(5);
  double level = 0;
  std::vector<double> values;
  for (int i = 0; i < 300; ++i) values.push_back(std::exp(level += kNormal(random)));
  EXPECT_FALSE(change_points(values, 299).empty());
}

}  // namespace
}  // namespace attnbench
