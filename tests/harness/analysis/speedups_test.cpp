// Tests of the speedups against a baseline method.
#include "harness/analysis/speedups.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/measured_record.h"

namespace attnbench {
namespace {

class SpeedupsTest : public testing::Test {
 protected:
  // Adds a record whose processes took about `ms`.
  Record& add(const std::string& method, int64_t length, double ms, int processes = 8, const std::string& device = "cpu") {
    auto& record = records_.emplace_back(measured_record(method, length, ms, device));
    record.set("process_medians_ms", values_around(ms, processes));
    return record;
  }
  // Adds ratios to a baseline to a record.
  static void set_ratios(Record& record, const std::string& baseline, double ratio, int processes = 8) {
    record.set("baseline", baseline);
    record.set("process_ratios", values_around(ratio, processes));
    record.set("baseline_median_ms", 123);
  }
  static double speed(const Speedup& speedup) { return std::exp(-speedup.ratio.ratio.estimate); }

  std::vector<Record> records_;
};

TEST_F(SpeedupsTest, TimesOfCasesThatDifferOnlyInTheMethodAreCompared) {
  add("softmax", 512, 10);
  add("linear", 512, 4);
  add("softmax", 1024, 40);
  add("linear", 1024, 8);
  const auto all = speedups(records_, "softmax");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NEAR(speed(all[0]), 2.5, 0.001);
  EXPECT_NEAR(speed(all[1]), 5, 0.001);
  for (const auto& speedup : all) {
    EXPECT_EQ(speedup.source, SpeedupSource::times);
    EXPECT_EQ(speedup.finding, Finding::faster);
    EXPECT_TRUE(speedup.has_verdict());
  }
  EXPECT_EQ(all[1].baseline_ms, 40);
  EXPECT_EQ(speedups(records_, "linear")[0].finding, Finding::slower);
}

TEST_F(SpeedupsTest, TimesOfDifferentHostsAreNotDivided) {
  add("softmax", 512, 10).set("host", "n1");
  add("linear", 512, 4).set("host", "n2, n1");
  EXPECT_FALSE(speedups(records_, "softmax")[0].is_known);
  records_[1].set("host", "n1");
  EXPECT_TRUE(speedups(records_, "softmax")[0].is_known);
  // Processes that took turns were on one host each.
  records_[1].set("host", "n2");
  set_ratios(records_[1], "softmax", 0.5);
  EXPECT_TRUE(speedups(records_, "softmax")[0].is_known);
}

TEST_F(SpeedupsTest, RatiosToTheBaselineAreUsedBeforeTimes) {
  add("softmax", 512, 10);
  set_ratios(add("linear", 512, 4), "softmax", 0.5);
  const auto speedup = speedups(records_, "softmax")[0];
  EXPECT_EQ(speedup.source, SpeedupSource::turns);
  EXPECT_NEAR(speed(speedup), 2, 0.001);
  EXPECT_EQ(speedup.baseline_ms, 123);
}

TEST_F(SpeedupsTest, ABaselineThatTookTurnsNeedsNoRecordOfItsOwn) {
  set_ratios(add("linear", 512, 4), "softmax", 0.25);
  const auto all = speedups(records_, "softmax");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].is_known);
  EXPECT_EQ(all[0].baseline, nullptr);
  EXPECT_NEAR(speed(all[0]), 4, 0.001);
  EXPECT_EQ(default_baseline(records_), "softmax");
}

TEST_F(SpeedupsTest, RatiosToAThirdBaselineAreDivided) {
  set_ratios(add("softmax", 512, 10), "sdpa query_len=256", 3);
  set_ratios(add("linear", 512, 4), "sdpa query_len=256", 0.5);
  const auto speedup = speedups(records_, "softmax")[0];
  EXPECT_EQ(speedup.source, SpeedupSource::ratios);
  EXPECT_NEAR(speed(speedup), 6, 0.001);
}

TEST_F(SpeedupsTest, FewerThanSixProcessesHaveNoVerdict) {
  add("softmax", 512, 10, 5);
  add("linear", 512, 4, 5);
  const auto speedup = speedups(records_, "softmax")[0];
  EXPECT_TRUE(speedup.is_known);
  EXPECT_FALSE(speedup.has_verdict());
  EXPECT_EQ(speedup.ratio.scope, IntervalScope::range_of_processes);
  EXPECT_EQ(speedup.finding, Finding::cannot_tell);
}

TEST_F(SpeedupsTest, MethodsThatAreAsFastAreEquivalent) {
  add("softmax", 512, 10);
  add("sdpa", 512, 10.2);
  EXPECT_EQ(speedups(records_, "softmax")[0].finding, Finding::equivalent);
  EXPECT_EQ(speedups(records_, "softmax", 0.01)[0].finding, Finding::slower);
}

TEST_F(SpeedupsTest, CasesWithoutAUsableTimeOrBaselineAreKept) {
  add("softmax", 512, 10).set_failed(kind::oom, "");
  add("linear", 512, 4);
  add("linear", 1024, 4);
  add("softmax", 2048, 10).set("implausible", "faster than light");
  add("linear", 2048, 4);
  const auto all = speedups(records_, "softmax");
  ASSERT_EQ(all.size(), 3u);
  for (const auto& speedup : all) EXPECT_FALSE(speedup.is_known);
  EXPECT_EQ(all[1].baseline, nullptr);
}

TEST_F(SpeedupsTest, AnUnknownBaselineIsRefusedWithTheMethodsThatThereAre) {
  add("softmax", 512, 10);
  set_ratios(add("linear:chunk=64", 512, 4), "sdpa", 0.5);
  set_ratios(add("lsh", 512, 4), "sdpa query_len=256", 0.5);
  const auto message = message_of<UsageError>([&] { speedups(records_, "sofmax"); });
  EXPECT_CONTAINS(message, "did you mean 'softmax'");
  EXPECT_CONTAINS(message, "known: softmax, linear:chunk=64, lsh, sdpa");
  EXPECT_EQ(speedups(records_, "linear:chunk=64").size(), 2u);
  EXPECT_THROW(speedups(records_, "linear"), UsageError);
  EXPECT_THROW(speedups(records_, "sdpa query_len=256"), UsageError);
}

TEST_F(SpeedupsTest, TheLongestCommonLengthOfEachSettingIsChosen) {
  for (const int64_t length : {1024, 512, 2048}) {
    auto& softmax = add("softmax", length, 10);
    if (length == 2048) softmax.set_failed(kind::oom, "");
    add("linear", length, 4);
  }
  add("softmax", 512, 3, 8, "cuda");
  add("linear", 512, 1, 8, "cuda");
  const auto longest = at_longest_lengths(speedups(records_, "softmax"));
  ASSERT_EQ(longest.size(), 2u);
  EXPECT_EQ(longest[0].record->number("query_len"), 1024);
  EXPECT_EQ(longest[1].record->text("device"), "cuda");
  EXPECT_EQ(longest[1].record->number("query_len"), 512);
}

TEST_F(SpeedupsTest, TheDefaultBaselineIsThatOfTheSweepOrElseTheFirstMethod) {
  add("linear", 512, 4);
  EXPECT_EQ(default_baseline(records_), "") << "there is only one method";
  add("softmax", 512, 10);
  EXPECT_EQ(default_baseline(records_), "linear");
  add("sdpa", 512, 3);
  EXPECT_EQ(default_baseline(records_), "sdpa");
  // The baseline has another length, but its method is among the records.
  set_ratios(add("lsh", 512, 4), "softmax query_len=256", 0.5);
  EXPECT_EQ(default_baseline(records_), "softmax");
}

}  // namespace
}  // namespace attnbench
