// Tests of the slowdown that tests of comparisons inject into a case.
#include "harness/worker/timing/injected_slowdown.h"

#include <gtest/gtest.h>

namespace attnbench {
namespace {

TEST(InjectedSlowdown, LengthensEveryTimeByItsPercentage) {
  EXPECT_EQ(slowed_down({2, 4, 8}, 25), (std::vector<double>{2.5, 5, 10}));
  EXPECT_EQ(slowed_down({2, 4, 8}, 0), (std::vector<double>{2, 4, 8}));
  EXPECT_EQ(slowed_down({}, 25), std::vector<double>{});
}

TEST(InjectedSlowdown, AddsItsPercentageToANumberOfCalls) {
  EXPECT_EQ(slowed_down_count(100, 0), 100);
  EXPECT_EQ(slowed_down_count(100, 25), 125);
  EXPECT_EQ(slowed_down_count(100, 0.4), 100);
}

}  // namespace
}  // namespace attnbench
