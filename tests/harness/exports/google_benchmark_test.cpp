// Tests of the export to the JSON of Google Benchmark on made-up records.
#include "harness/exports/google_benchmark.h"

#include <gtest/gtest.h>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

Record measured(const std::string& method, int64_t query_len, double ms) {
  Case c;
  c.method = method;
  c.query_len = query_len;
  c.threads = 2;
  c.complete();
  Record record(c);
  record.set("outcome", outcome::measured);
  record.set("time_median_ms", ms);
  record.set("samples", 7);
  record.set("calls_per_sample", 3);
  return record;
}

Json rows_of(const std::vector<RecordsOfFolder>& folders, const GoogleBenchmarkOptions& options = {}) {
  return google_benchmark_export(exported_cases(folders).cases, options).at("benchmarks");
}

TEST(GoogleBenchmark, OneProcessIsOneRow) {
  const auto rows = rows_of({{"a", {measured("linear", 64, 5)}, {}}});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("name"), "linear/forward/query_len:64/threads:2");
  EXPECT_EQ(rows[0].at("iterations"), 21);
  EXPECT_EQ(rows[0].at("real_time"), 5);
  EXPECT_EQ(rows[0].at("cpu_time"), 5) << "the share of the processors was not measured";
}

TEST(GoogleBenchmark, ProcessorTimeIsThatOfAllThreads) {
  auto record = measured("linear", 64, 5);
  record.set("processor_share", 0.9);
  EXPECT_DOUBLE_EQ(rows_of({{"a", {record}, {}}})[0].at("cpu_time").get<double>(), 9);
}

TEST(GoogleBenchmark, AggregatesAreOverTheProcessesThatCount) {
  auto record = measured("linear", 64, 5);
  record.set("process_medians_ms", Json::array({4, 6}));
  const std::vector<Record> processes = {measured("linear", 64, 4), measured("linear", 64, 60), measured("linear", 64, 6)};
  const auto rows = rows_of({{"a", {record}, processes}});
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[1].at("real_time"), 60) << "a process that does not count is still a row";
  EXPECT_EQ(rows[1].at("repetition_index"), 1);
  EXPECT_EQ(rows[3].at("name"), "linear/forward/query_len:64/threads:2_mean");
  EXPECT_EQ(rows[3].at("real_time"), 5);
  EXPECT_EQ(rows[3].at("iterations"), 2);
  EXPECT_EQ(rows[6].at("aggregate_unit"), "percentage");
  const auto aggregates = rows_of({{"a", {record}, processes}}, {.aggregates_only = true});
  EXPECT_EQ(aggregates.size(), 4u);
}

TEST(GoogleBenchmark, CasesAreNumberedWithinTheirFamily) {
  const auto rows = rows_of({{"a", {measured("linear", 64, 5), measured("lsh", 64, 5), measured("linear", 128, 9)}, {}}});
  EXPECT_EQ(rows[1].at("family_index"), 1);
  EXPECT_EQ(rows[2].at("family_index"), 0);
  EXPECT_EQ(rows[2].at("per_family_instance_index"), 1);
}

TEST(GoogleBenchmark, WhatWasNotMeasuredHereIsCounted) {
  auto failed = measured("linear", 64, 5), imported = measured("lsh", 64, 5);
  failed.set_failed(kind::crashed, "x");
  imported.set("external_source", "a paper");
  const std::vector<RecordsOfFolder> folders = {{"a", {failed, imported, measured("linear", 128, 9)}, {}}};
  EXPECT_EQ(exported_cases(folders).left_out, 2u);
  EXPECT_EQ(rows_of(folders).size(), 1u);
}

TEST(GoogleBenchmark, FoldersWithACaseInCommonAreRefused) {
  const auto record = measured("linear", 64, 5);
  EXPECT_CONTAINS(message_of<UsageError>([&] {
                    rows_of({{"a", {record}, {}}, {"b", {record}, {}}});
                  }),
                  "a and b both have the case linear/forward/query_len:64/threads:2");
}

}  // namespace
}  // namespace attnbench
