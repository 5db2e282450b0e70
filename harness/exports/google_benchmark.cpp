// Writes a row for each process of a case, and rows of their mean, median and spread, with Google Benchmark's names of keys.
#include "harness/exports/google_benchmark.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "harness/statistics/statistics.h"

namespace attnbench {
namespace {

constexpr auto kTimeUnit = "ms";

int64_t integer_in(const Record& record, std::string_view column, int64_t otherwise) {
  const auto& value = record.get(column);
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

// Processor time divided by wall time, over all threads.
double processors_used(const Record& record) {
  const auto share = record.number("processor_share");
  return std::isnan(share) ? 1 : share * double(integer_in(record, "threads", 1));
}

int64_t timed_calls(const Record& record) {
  return std::max<int64_t>(1, integer_in(record, "samples", 1) * integer_in(record, "calls_per_sample", 1));
}

// What the rows of one case have in common, in the order in which Google Benchmark writes it.
struct Family {
  std::string run_name;
  int64_t family_index, index_in_family, repetitions, threads;
};

Json row_of(const Family& family, const std::string& suffix, const char* run_type) {
  return {{"name", family.run_name + suffix},
          {"family_index", family.family_index},
          {"per_family_instance_index", family.index_in_family},
          {"run_name", family.run_name},
          {"run_type", run_type},
          {"repetitions", family.repetitions}};
}

Json row_of_process(const Family& family, int64_t repetition, double ms, double processors, int64_t calls) {
  auto row = row_of(family, "", "iteration");
  row["repetition_index"] = repetition;
  row["threads"] = family.threads;
  row["iterations"] = calls;
  row["real_time"] = ms;
  row["cpu_time"] = ms * processors;
  row["time_unit"] = kTimeUnit;
  return row;
}

Json aggregate_row(const Family& family, const std::string& aggregate, double value, double cpu_value, size_t count) {
  auto row = row_of(family, "_" + aggregate, "aggregate");
  row["threads"] = family.threads;
  row["aggregate_name"] = aggregate;
  row["aggregate_unit"] = aggregate == "cv" ? "percentage" : "time";
  row["iterations"] = count;
  row["real_time"] = value;
  row["cpu_time"] = cpu_value;
  row["time_unit"] = kTimeUnit;
  return row;
}

void add_aggregates(Json& rows, const Family& family, const std::vector<double>& medians, double processors) {
  const auto count = medians.size();
  const double mean = std::accumulate(medians.begin(), medians.end(), 0.0) / double(count);
  const double squares = std::accumulate(medians.begin(), medians.end(), 0.0,
                                         [&](double sum, double ms) { return sum + (ms - mean) * (ms - mean); });
  const double deviation = std::sqrt(squares / double(count - 1));
  rows.push_back(aggregate_row(family, "mean", mean, mean * processors, count));
  rows.push_back(aggregate_row(family, "median", median(medians), median(medians) * processors, count));
  rows.push_back(aggregate_row(family, "stddev", deviation, deviation * processors, count));
  rows.push_back(aggregate_row(family, "cv", deviation / mean, deviation / mean, count));
}

// The rows of one case: its processes, then the aggregates. The bytes of the record are a counter of every row of a process.
void add_rows(Json& rows, Family family, const Record& record, const std::vector<const Record*>& processes,
              const GoogleBenchmarkOptions& options) {
  auto counting = record.numbers("process_medians_ms");
  const auto processors = processors_used(record);
  auto process_rows = Json::array();
  family.repetitions = int64_t(std::max({processes.size(), counting.size(), size_t{1}}));
  // Older folders, and single files, have no lines of processes.
  if (processes.empty() && counting.size() < 2)
    process_rows.push_back(row_of_process(family, 0, record.number("time_median_ms"), processors, timed_calls(record)));
  else if (processes.empty())
    for (const auto ms : counting)
      process_rows.push_back(row_of_process(family, int64_t(process_rows.size()), ms, processors,
                                            std::max<int64_t>(1, timed_calls(record) / family.repetitions)));
  for (const auto* process : processes)
    process_rows.push_back(row_of_process(family, int64_t(process_rows.size()), process->number("time_median_ms"),
                                          processors_used(*process), timed_calls(*process)));
  if (!options.aggregates_only || counting.size() < 2)
    for (auto& row : process_rows) {
      if (record.has("peak_extra_bytes")) row["peak_extra_bytes"] = record.get("peak_extra_bytes");
      rows.push_back(std::move(row));
    }
  if (counting.size() >= 2) add_aggregates(rows, family, counting, processors);
}

// The different values of a column, separated by commas.
std::string values_of(const std::vector<const Record*>& records, std::string_view column) {
  std::set<std::string> values;
  for (const auto* record : records)
    if (record->has(column)) values.insert(record->text(column));
  return fmt::format("{}", fmt::join(values, ","));
}

// The largest value of a column of numbers; 0 if no record has one.
double largest(const std::vector<const Record*>& records, std::string_view column) {
  double max = 0;
  for (const auto* record : records)
    if (record->has(column)) max = std::max(max, record->number(column));
  return max;
}

// The time of the last record, as Google Benchmark writes it.
std::string last_date(const std::vector<const Record*>& records) {
  std::string last;
  for (const auto* record : records) last = std::max(last, record->text("finished_at"));
  if (last.ends_with('Z')) last.replace(last.size() - 1, 1, "+00:00");
  return last;
}

Json context_of(const std::vector<const Record*>& records) {
  const auto governor = values_of(records, "cpu_governor");
  return {{"date", last_date(records)},
          {"host_name", values_of(records, "host")},
          {"executable", "attnbench"},
          {"num_cpus", int64_t(largest(records, "processors"))},
          {"mhz_per_cpu", int64_t(std::llround(largest(records, "cpu_clock_mhz")))},
          {"cpu_scaling_enabled", !governor.empty() && governor != "performance"},
          {"caches", Json::array()},
          {"load_avg", Json::array({largest(records, "load")})},
          {"library_build_type", values_of(records, "build").find("Debug") == std::string::npos ? "release" : "debug"},
          {"cpu_model", values_of(records, "cpu_model")},
          {"revision", values_of(records, "revision")},
          {"torch_version", values_of(records, "torch_version")}};
}

}  // namespace

Json google_benchmark_export(const std::vector<ExportedCase>& exported, const GoogleBenchmarkOptions& options) {
  std::map<std::string, std::pair<int64_t, int64_t>> families;  // index and number of cases so far, by method and protocol
  std::vector<const Record*> records;
  auto rows = Json::array();
  for (const auto& [record, processes, name, rest] : exported) {
    auto& [family, cases] =
        families.try_emplace(record->text("method") + "/" + record->text("protocol"), int64_t(families.size()), 0).first->second;
    add_rows(rows, {name, family, cases++, 1, integer_in(*record, "threads", 1)}, *record, processes, options);
    records.push_back(record);
  }
  return {{"context", context_of(records)}, {"benchmarks", std::move(rows)}};
}

}  // namespace attnbench
