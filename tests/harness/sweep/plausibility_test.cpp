// Tests of times that are far too long for their curve. Those that are too short are tested with the case runner.
#include "harness/sweep/plausibility.h"

#include <gtest/gtest.h>

#include "tests/support/errors_of.h"
#include "tests/support/test_ceilings.h"

namespace attnbench {
namespace {

// A measured record of quadratic work.
Record record_of(int64_t length, double ms, const std::string& protocol = "forward") {
  Case c;
  c.method = "softmax";
  c.protocol = protocol;
  c.query_len = length;
  c.complete();
  Record record(c);
  record.set("outcome", outcome::measured);
  record.set("flops", 1e3 * double(length) * double(length));
  record.set("min_bytes", 1.0);
  record.set("time_median_ms", ms);
  return record;
}

TEST(TooSlow, ATimeFarAboveBothNeighboursIsMarked) {
  const auto marked = too_slow({record_of(4096, 170), record_of(1024, 10), record_of(2048, 261)}, kCeilings);
  ASSERT_EQ(marked.size(), 1u);
  EXPECT_EQ(marked[0].get("query_len"), 2048);
  EXPECT_EQ(marked[0].text("implausible"), "261 ms is 6.1 times as long as the neighbours at N = 1024 and 4096 suggest");
}

TEST(TooSlow, ACurveThatGetsSlowerAndStaysSoIsNot) {
  EXPECT_TRUE(too_slow({record_of(1024, 10), record_of(2048, 200), record_of(4096, 800)}, kCeilings).empty());
}

TEST(TooSlow, AnotherCurveIsNoNeighbour) {
  EXPECT_TRUE(too_slow({record_of(1024, 10), record_of(2048, 261, "forward_backward"), record_of(4096, 160)}, kCeilings).empty());
}

TEST(TooSlow, TheEndsOfACurveAreNotJudged) {
  EXPECT_TRUE(too_slow({record_of(1024, 100), record_of(2048, 40), record_of(4096, 1600)}, kCeilings).empty());
}

}  // namespace
}  // namespace attnbench
