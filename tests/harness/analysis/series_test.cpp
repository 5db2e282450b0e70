// Tests of the series of records and of their values at each length.
#include "harness/analysis/series.h"

#include "tests/harness/analysis/analysis_fixture.h"

namespace attnbench {
namespace {

using SeriesTest = AnalysisTest;

TEST_F(SeriesTest, RecordsOfASeriesDifferOnlyInLengths) {
  add("linear", 1024, 1, 1);
  add("linear", 512, 1, 1, 0.01, 8);
  add("linear", 512, 1, 1).set("heads", 2);
  add("softmax", 512, 1, 1);
  const auto all = series_of(records_);
  ASSERT_EQ(all.size(), 3u);
  ASSERT_EQ(all[0].records.size(), 2u);
  EXPECT_EQ(all[0].records[0], &records_[1]) << "by ascending length";
  EXPECT_FALSE(all[0].setting.contains("batch"));
}

TEST_F(SeriesTest, AWholeNumberIsTheSameWithAndWithoutADecimalPoint) {
  add("linear", 512, 1, 1).set("concentration", 2);
  add("linear", 1024, 1, 1).set("concentration", 2.0);
  add("linear", 2048, 1, 1).set("concentration", 2.5);
  EXPECT_EQ(series_of(records_).size(), 2u);
}

TEST_F(SeriesTest, PointsAreValuesPerSampleOfEachLengthAndBatchSize) {
  add("linear", 512, 2, 10, 0.5, 8);
  add("linear", 512, 3, 20, 0.5, 4);
  add("linear", 512, 4, 30, 0.5, 8);
  const auto all = series_of(records_);
  const auto times = all[0].points("time");
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].batch, 4);
  EXPECT_DOUBLE_EQ(times[0].value, 3);
  EXPECT_DOUBLE_EQ(times[1].value, 4) << "the last record of this length and batch size counts";
  EXPECT_EQ(times[1].interval, (Interval{2, 6}));
  EXPECT_EQ(all[0].points("memory")[1].interval, (Interval{30, 30}));
}

TEST_F(SeriesTest, ATimeWithoutARecordedIntervalHasAnInfiniteOne) {
  auto& record = add("linear", 512, 2, 10);
  record.set("time_ci_low_ms", nullptr);
  record.set("time_ci_high_ms", nullptr);
  const auto all = series_of(records_);
  EXPECT_EQ(all[0].points("time")[0].interval, (Interval{-INFINITY, INFINITY}));
}

TEST_F(SeriesTest, ProcessValuesAreEmptyUnlessThereAreEnoughPositiveNumbers) {
  auto& record = add("linear", 512, 2, 10);
  EXPECT_TRUE(process_values(record, "process_medians_ms").empty());
  record.set("process_medians_ms", {1, 2, 3, 4, 5});
  EXPECT_TRUE(process_values(record, "process_medians_ms").empty());
  record.set("process_medians_ms", {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(process_values(record, "process_medians_ms").size(), 6u);
  record.set("process_medians_ms", {1, 2, 3, 4, 5, 0});
  EXPECT_TRUE(process_values(record, "process_medians_ms").empty());
  record.set("process_medians_ms", {1, 2, 3, 4, 5, nullptr});
  EXPECT_TRUE(process_values(record, "process_medians_ms").empty());
}

TEST_F(SeriesTest, ValuesOfTheSameRoundsBelongTogether) {
  using Values = std::vector<std::vector<double>>;
  Record one = add("linear", 512, 2, 10), other = one;
  one.set("process_medians_ms", {1, 2, 3, 4, 5, 6, 7});
  other.set("process_medians_ms", {10, 20, 30, 50, 60, 70, 80});
  const auto values = [&] { return values_of_same_rounds({&one, &other}, "process_medians_ms"); };
  EXPECT_EQ(values(), (Values{{1, 2, 3, 4, 5, 6, 7}, {10, 20, 30, 50, 60, 70, 80}})) << "without rounds, by their places";
  one.set("process_rounds", {1, 2, 3, 4, 5, 6, 7});
  other.set("process_rounds", {1, 2, 3, 5, 6, 7, 8});
  EXPECT_EQ(values(), (Values{{1, 2, 3, 5, 6, 7}, {10, 20, 30, 50, 60, 70}}));
  other.set("process_rounds", {1, 2, 3, 5, 6, 8, 9});
  EXPECT_TRUE(values().empty()) << "five rounds in common are too few";
  other.set("process_rounds", nullptr);
  other.set("process_medians_ms", {10, 20, 30, 50, 60, 70});
  EXPECT_TRUE(values().empty()) << "without rounds, lists of different lengths";
}

TEST_F(SeriesTest, TheDeclaredOrderOfDecodingIsThatOfOneStep) {
  add("linear:chunk=2", 512, 1, 1);
  add("linear", 512, 1, 1).set("protocol", "decode");
  add("unknown", 512, 1, 1);
  add("taylor", 512, 1, 1).set("protocol", "decode");
  const auto all = series_of(records_);
  EXPECT_EQ(declared_order(all[0], "time", kMethods), "O(N)");
  EXPECT_EQ(declared_order(all[1], "time", kMethods), "O(1)");
  EXPECT_EQ(declared_order(all[2], "time", kMethods), "");
  EXPECT_EQ(declared_order(all[3], "time", kMethods), "") << "the description has no order of a step";
}

}  // namespace
}  // namespace attnbench
