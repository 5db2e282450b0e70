// Tests of which samples an estimate leaves out.
#include "harness/statistics/disturbance.h"

#include <gtest/gtest.h>

namespace attnbench {
namespace {

using Values = std::vector<double>;

TEST(Disturbance, SamplesCountUpToTheMaxShare) {
  EXPECT_EQ(undisturbed({1, 2, 3, 4}, {0, 0.1, 0.11, 5}, 0.1), (Values{1, 2}));
  EXPECT_EQ(undisturbed({1, 2}, {}, 0.1), (Values{1, 2})) << "records of earlier builds have no shares";
}

TEST(Disturbance, AnEstimateIsNeverEmpty) {
  const auto enough = counted({1, 2, 3, 9}, {0, 0, 0, 1}, 0.1);
  EXPECT_EQ(enough.values, (Values{1, 2, 3}));
  EXPECT_FALSE(enough.all);
  const auto too_few = counted({1, 2, 8, 9}, {0, 0, 1, 1}, 0.1);
  EXPECT_EQ(too_few.values, (Values{1, 2, 8, 9}));
  EXPECT_TRUE(too_few.all);
  EXPECT_FALSE(counted({7}, {0}, 0.1).all) << "one undisturbed sample is all that there is";
}

TEST(Disturbance, ARatioCountsIfBothOfItsSamplesAreUndisturbed) {
  const auto ratios = counted_ratios({2, 4, 6, 8, 10}, {0, 1, 0, 0, 0}, {1, 1, 2, 2, 2, 7}, {0, 0, 0, 1, 0, 0}, 0.1);
  EXPECT_EQ(ratios.values, (Values{2, 3, 5}));
  EXPECT_FALSE(ratios.all);
  EXPECT_TRUE(counted_ratios({2, 4}, {0, 1}, {1, 1}, {1, 0}, 0.1).all);
  EXPECT_TRUE(counted_ratios({2}, {}, {}, {}, 0.1).values.empty());
}

}  // namespace
}  // namespace attnbench
