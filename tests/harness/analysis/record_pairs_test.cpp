// Tests of which records are paired, and which of their values are compared.
#include "harness/analysis/record_pairs.h"

#include <gtest/gtest.h>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/measured_record.h"

namespace attnbench {
namespace {

Record record_of(const std::string& method, int64_t length) { return measured_record(method, length, 2.5); }

void set_ratios(Record& record, const std::string& baseline, const Json& ratios) {
  record.set("baseline", baseline);
  record.set("process_ratios", ratios);
}

TEST(RecordPairs, PairsEqualCasesAndKeepsThoseOfOneSide) {
  const std::vector<Record> a = {record_of("linear", 32), record_of("softmax", 32)}, b = {record_of("linear", 32)};
  const auto pairs = pair_records({a, b, "a", "b"}, {});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].a, &a[0]);
  EXPECT_EQ(pairs[0].b, &b[0]);
  EXPECT_TRUE(pairs[0].both_measured());
  EXPECT_EQ(pairs[1].b, nullptr);
  EXPECT_FALSE(pairs[1].both_measured());
  EXPECT_EQ(outcome_of(pairs[1].b), "missing");
}

TEST(RecordPairs, SeveralMethodsOfOneFolderPointToTheBaseline) {
  const std::vector<Record> a = {record_of("linear", 32), record_of("softmax", 32)};
  const auto message = message_of<UsageError>([&] { pair_records({a, a, "folder", "folder"}, {"method"}); });
  EXPECT_CONTAINS(message, "several records that differ only in method");
  EXPECT_CONTAINS(message, "`attnbench compare folder --baseline METHOD`");
}

// "sdpa" on another device is another baseline, although the setting is the same.
TEST(RecordPairs, RatiosToBaselinesOfOtherAxesAreNotCompared) {
  auto one = record_of("linear", 32), same = one, other = one;
  other.set("device", "cuda");
  for (auto* record : {&one, &same, &other}) set_ratios(*record, "sdpa", {0.5, 0.6});
  EXPECT_EQ(best_quantity(one, same), Quantity::ratio);
  EXPECT_EQ(best_quantity(one, other), Quantity::time);
  for (auto* record : {&one, &other}) record->set("baseline", "sdpa device=cpu");
  EXPECT_EQ(best_quantity(one, other), Quantity::ratio);
}

TEST(RecordPairs, TheRatioOfASingleProcessCounts) {
  auto record = record_of("linear", 32);
  EXPECT_TRUE(process_values(record, Quantity::ratio).empty());
  record.set("ratio_median", 0.25);
  EXPECT_EQ(process_values(record, Quantity::ratio), std::vector<double>{0.25});
}

TEST(RecordPairs, ImportedAndFailedRecordsAreNotCompared) {
  auto imported = record_of("linear", 32), failed = record_of("linear", 32);
  imported.set("external_source", "a paper");
  failed.set_failed(kind::oom, "");
  const auto measured = record_of("linear", 32);
  EXPECT_FALSE((RecordPair{&measured, &imported}).both_measured());
  EXPECT_FALSE((RecordPair{&failed, &measured}).both_measured());
  EXPECT_EQ(outcome_of(&imported), "external");
  EXPECT_EQ(outcome_of(&failed), "oom");
}

TEST(RecordPairs, RatiosAreComparedIfBothSidesHaveTheSameBaseline) {
  auto a = record_of("linear", 32), b = record_of("linear", 32);
  EXPECT_EQ(best_quantity(a, b), Quantity::time);
  set_ratios(a, "softmax", {0.5, 0.6});
  EXPECT_EQ(best_quantity(a, b), Quantity::time);
  set_ratios(b, "sdpa", {0.5, 0.6});
  EXPECT_EQ(best_quantity(a, b), Quantity::time);
  set_ratios(b, "softmax", {0.5, 0.6});
  EXPECT_EQ(best_quantity(a, b), Quantity::ratio);
  set_ratios(b, "softmax", nullptr);
  EXPECT_EQ(best_quantity(a, b), Quantity::time);
}

TEST(RecordPairs, EachProcessHasOneValue) {
  auto record = record_of("linear", 32);
  EXPECT_EQ(process_values(record, Quantity::time), std::vector<double>{2.5});
  record.set("process_medians_ms", {2, 3, nullptr, 4});
  EXPECT_EQ(process_values(record, Quantity::time), (std::vector<double>{2, 3, 4}));
  EXPECT_TRUE(process_values(record, Quantity::ratio).empty());
  set_ratios(record, "softmax", {0.5, 0});
  const auto message = message_of<UsageError>([&] { process_values(record, Quantity::ratio); });
  EXPECT_CONTAINS(message, "process_ratios = 0");
  EXPECT_CONTAINS(message, "linear");
}

}  // namespace
}  // namespace attnbench
