// Computes the statistics of records: of the samples of a process, and across the processes of a case.
#include "harness/sweep/process_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "harness/statistics/disturbance.h"
#include "harness/statistics/equivalence.h"
#include "harness/statistics/statistics.h"
#include "harness/sweep/plausibility.h"

namespace attnbench {
namespace {

// The text of the column time_ci_scope for a case with so many processes.
std::string scope_text(size_t processes) {
  const auto name = scope_name(scope_of(processes));
  return name.empty() ? kSpreadWithinProcess : name;
}

// Marks a time that a side effect may have made longer. Memory that is kept between calls should cause no page faults.
void add_suspicion(Record& record) {
  constexpr double kMaxFaults = 100, kMaxSystemShare = 0.05;
  const auto faults = record.number("page_faults_per_call"), share = record.number("system_share");
  if (record.text("allocation") == "kept" && faults > kMaxFaults && share > kMaxSystemShare)
    record.set("suspect",
               fmt::format("{:.0f} page faults a call and {:.0f} % of the processor time in the system, although memory "
                           "is kept between calls",
                           faults, 100 * share));
}

// The values of a column in these records, without the missing ones.
std::vector<double> values_of(const std::vector<const Record*>& records, std::string_view column) {
  std::vector<double> values;
  for (const auto* record : records)
    if (record->has(column)) values.push_back(record->number(column));
  return values;
}

// The processes that count for the estimates: the undisturbed ones, unless fewer than `wanted` would remain.
std::vector<const Record*> counted_processes(const std::vector<Record>& processes, size_t wanted) {
  std::vector<const Record*> all, undisturbed;
  for (const auto& process : processes) {
    all.push_back(&process);
    if (process.get("disturbed_processes") != 1) undisturbed.push_back(&process);
  }
  return undisturbed.size() < std::min(wanted, all.size()) ? all : undisturbed;
}

// Sets a median of the processes' values, its interval, and the list of the values.
void set_across(Record& record, const std::vector<double>& values, const std::string& median_column,
                const std::string& low_column, const std::string& high_column, const std::string& list_column) {
  for (const auto& column : {median_column, low_column, high_column, list_column}) record.set(column, nullptr);
  if (values.empty()) return;
  record.set(median_column, median(values));
  record.set(list_column, values);
  if (values.size() < 2) return;
  const auto [low, high] = order_statistic_interval(values);
  record.set(low_column, low);
  record.set(high_column, high);
}

// Gives the record of the first process the samples and the sums of all processes, and the statistics across them.
void add_processes(Record& record, const std::vector<Record>& processes, size_t wanted) {
  for (const auto* column :
       {"time_samples_ms", "wall_samples_ms", "sample_disturbances", "baseline_samples_ms", "baseline_disturbances"}) {
    auto joined = Json::array();
    for (const auto& process : processes)
      for (const auto& sample : process.get(column)) joined.push_back(sample);
    record.set(column, joined.empty() ? Json() : joined);
  }
  std::vector<const Record*> all;
  for (const auto& process : processes) all.push_back(&process);
  for (const auto* column : {"measured_s", "samples", "samples_with_launches", "warmup_calls", "disturbed_samples",
                             "disturbed_processes", "involuntary_switches"}) {
    const auto values = values_of(all, column);
    const auto sum = std::accumulate(values.begin(), values.end(), 0.0);
    const bool is_integer = find_column(column)->type == ColumnType::integer;
    record.set(column, values.empty() ? Json() : is_integer ? Json(int64_t(std::llround(sum))) : Json(sum));
  }
  const auto counting = counted_processes(processes, wanted);
  for (const auto* column : {"time_q1_ms", "time_q3_ms", "wall_median_ms", "baseline_median_ms", "probe_arithmetic_us",
                             "probe_memory_us", "probe_best_arithmetic_us", "probe_best_memory_us", "processor_share",
                             "system_share", "run_delay_share", "steal_share", "page_faults_per_call", "load", "cpu_clock_mhz"})
    if (const auto values = values_of(counting, column); !values.empty()) record.set(column, median(values));
  set_across(record, values_of(counting, "time_median_ms"), "time_median_ms", "time_ci_low_ms", "time_ci_high_ms",
             "process_medians_ms");
  record.set("process_q1_ms", values_of(counting, "time_q1_ms"));
  record.set("process_rounds", values_of(counting, "round"));
  record.set("time_ci_scope", scope_text(counting.size()));
  record.set("time_per_sample_ms", record.number("time_median_ms") / std::max(1.0, record.number("batch")));
  set_across(record, values_of(counting, "ratio_median"), "ratio_median", "ratio_ci_low", "ratio_ci_high", "process_ratios");
  for (const auto* column : {"ratio_pairing", "ratio_failure_kind", "ratio_reason"}) {
    std::set<std::string> texts;
    for (const auto& process : processes)
      if (process.has(column)) texts.insert(process.text(column));
    record.set(column, texts.empty() ? Json() : Json(fmt::format("{}", fmt::join(texts, "; "))));
  }
  add_suspicion(record);
}

}  // namespace

void add_statistics(Record& record) {
  if (const auto wall = record.numbers("wall_samples_ms"); !wall.empty()) record.set("wall_median_ms", median(wall));
  const auto max_share = record.number("max_disturbance");
  const auto shares = record.numbers("sample_disturbances"), all = record.numbers("time_samples_ms");
  if (all.empty()) return;
  auto [samples, disturbed] = counted(all, shares, max_share);
  record.set("disturbed_samples", int64_t(all.size() - undisturbed(all, shares, max_share).size()));
  record.set("disturbed_processes", disturbed ? 1 : 0);
  std::sort(samples.begin(), samples.end());
  record.set("time_median_ms", quantile(samples, 0.5));
  record.set("time_q1_ms", quantile(samples, 0.25));
  record.set("time_q3_ms", quantile(samples, 0.75));
  record.set("time_ci_low_ms", quantile(samples, 0.25));
  record.set("time_ci_high_ms", quantile(samples, 0.75));
  record.set("time_ci_scope", scope_text(1));
  record.set("time_per_sample_ms", quantile(samples, 0.5) / std::max(1.0, record.number("batch")));
  add_suspicion(record);
}

std::optional<NoBaseline> why_no_baseline(const Record& process) {
  if (!process.has("ratio_reason")) return std::nullopt;
  return NoBaseline{process.text("ratio_failure_kind"), process.text("ratio_reason")};
}

NoBaseline failure_of(const Record& baseline) { return {baseline.text("failure_kind"), baseline.text("reason")}; }

void set_no_baseline(Record& record, const NoBaseline& why) {
  record.set("ratio_pairing", nullptr);
  record.set("ratio_failure_kind", why.kind.empty() ? Json() : Json(why.kind));
  record.set("ratio_reason", why.reason);
}

void add_ratio(Record& record, const Record& baseline, std::string_view pairing) {
  record.set("ratio_pairing", pairing);
  const auto samples = baseline.numbers("time_samples_ms"), shares = baseline.numbers("sample_disturbances");
  record.set("baseline_samples_ms", samples);
  record.set("baseline_disturbances", shares);
  record.set("baseline_median_ms", baseline.number("time_median_ms"));
  record.set("baseline_digest", baseline.get("results_digest"));
  if (pairing == kInProcesses)
    return record.set("ratio_median", record.number("time_median_ms") / baseline.number("time_median_ms"));
  auto [ratios, disturbed] = counted_ratios(record.numbers("time_samples_ms"), record.numbers("sample_disturbances"), samples,
                                            shares, record.number("max_disturbance"));
  if (ratios.empty()) return set_no_baseline(record, {"", "it ended before its first sample"});
  if (disturbed) record.set("disturbed_processes", 1);
  std::sort(ratios.begin(), ratios.end());
  record.set("ratio_median", quantile(ratios, 0.5));
  record.set("ratio_ci_low", quantile(ratios, 0.25));
  record.set("ratio_ci_high", quantile(ratios, 0.75));
}

Record record_of_processes(const std::vector<Record>& processes, size_t wanted, const std::optional<Ceilings>& ceilings) {
  auto record = processes.back().measured() ? processes.front() : processes.back();
  for (const auto* column : {"round", "place", "boot"}) record.set(column, nullptr);
  record.set("process", int64_t(processes.size()));
  std::set<std::string> hosts, boots, starts;
  double worker_s = 0;
  for (const auto& process : processes) {
    hosts.insert(process.text("host"));
    boots.insert(process.text("boot"));
    if (process.has("process_start")) starts.insert(process.text("process_start"));
    worker_s += process.number("worker_s");
  }
  record.set("host", fmt::format("{}", fmt::join(hosts, ", ")));
  if (!starts.empty()) record.set("process_start", fmt::format("{}", fmt::join(starts, "; ")));
  if (boots.size() > 1) record.set("boots", int64_t(boots.size()));
  record.set("worker_s", worker_s);
  record.set("finished_at", processes.back().get("finished_at"));
  if (!record.measured()) return record;
  if (processes.size() > 1) add_processes(record, processes, wanted);
  if (ceilings) mark_too_fast(record, *ceilings);
  return record;
}

}  // namespace attnbench
