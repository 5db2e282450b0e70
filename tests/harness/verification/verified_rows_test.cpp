// Tests of which cases are verified, and of the verdict on the cases of a row.
#include "harness/verification/verified_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attnbench {
namespace {

// A record of the n-th case of the row, with this outcome.
Record record_of(const VerifiedRow& row, size_t n, const char* ended) {
  Record record(row.cases[n]);
  record.set("outcome", ended);
  if (ended != std::string(outcome::measured)) record.set("reason", "not here");
  return record;
}

VerifiedRow first_row() { return rows_to_verify({"linear"}, "cpu", /*quick=*/true).front(); }

TEST(RowsToVerify, QuickLeavesOutDtypesLongSequencesAndHardInputs) {
  for (const auto& row : rows_to_verify({"linear"}, "cpu", /*quick=*/true)) {
    EXPECT_EQ(row.dtype, "float32");
    for (const auto& c : row.cases) EXPECT_TRUE(c.query_len < 300 && c.inputs == "normal") << c.query_len << c.inputs;
  }
  const auto rows = rows_to_verify({"linear"}, "cpu", /*quick=*/false);
  const auto any = [&](auto holds) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const VerifiedRow& row) { return std::any_of(row.cases.begin(), row.cases.end(), holds); });
  };
  EXPECT_TRUE(any([](const Case& c) { return c.dtype == "bfloat16"; }));
  EXPECT_TRUE(any([](const Case& c) { return c.query_len == 300; }));
  EXPECT_TRUE(any([](const Case& c) { return c.inputs == "outliers"; }));
}

TEST(RowsToVerify, OnlyCausalRowsWithAllKeysDecode) {
  for (const auto& row : rows_to_verify({"linear"}, "cpu", /*quick=*/false)) {
    const bool decodes = std::any_of(row.cases.begin(), row.cases.end(), [](const Case& c) { return c.protocol == "decode"; });
    EXPECT_EQ(decodes, row.causal && row.key_lengths == "full");
  }
}

TEST(VerifiedRow, ARowAgreesIfACaseIsMeasuredAndNoneFails) {
  auto row = first_row();
  row.records.push_back(record_of(row, 0, outcome::skipped));
  EXPECT_EQ(row.verdict(), "unsupported: not here");
  row.records.push_back(record_of(row, 1, outcome::measured));
  row.records.back().set("excess_error", 1e-7);
  EXPECT_EQ(row.verdict(), "agrees");
  EXPECT_FALSE(row.is_complete());
  EXPECT_EQ(row.max_error(row.cases[1].protocol.c_str()), 1e-7);
  EXPECT_LT(row.max_error("prefill"), 0) << "no case of the row has this protocol";
  EXPECT_TRUE(row.failed_case().is_null());
}

TEST(VerifiedRow, OneFailureIsTheVerdict) {
  auto row = first_row();
  row.records.push_back(record_of(row, 0, outcome::measured));
  row.records.push_back(record_of(row, 1, outcome::failed));
  row.records.back().set("failure_kind", kind::error);
  EXPECT_TRUE(row.verdict().starts_with("error at N=")) << row.verdict();
  EXPECT_EQ(row.failed_case()["query_len"], row.cases[1].query_len);
  RowCounts counts;
  counts.add(row);
  EXPECT_EQ(counts.failed, 1u);
  EXPECT_EQ(counts.agree, 0u);
}

}  // namespace
}  // namespace attnbench
