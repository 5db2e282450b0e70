// Estimates speedups from processes that took turns, from ratios to a common baseline, or from the times alone.
#include "harness/analysis/speedups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/analysis/record_pairs.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"

namespace attnbench {
namespace {

// The column `baseline` is a method, which axes that differ from the case's may follow.
bool is_method_alone(const std::string& baseline) { return !baseline.empty() && baseline.find(' ') == std::string::npos; }

bool is_usable(const Record* record) { return outcome_of(record) == outcome::measured && !record->has("implausible"); }

bool took_turns(const Record& record, const std::string& baseline) {
  return is_usable(&record) && record.text("baseline") == baseline && !process_values(record, Quantity::ratio).empty();
}

void set_estimate(Speedup& speedup, double within) {
  speedup.is_known = true;
  if (speedup.has_verdict()) speedup.finding = finding_of(speedup.ratio, excludes_equality(speedup.ratio), within);
}

Speedup speedup_of(const Record& record, const Record* baseline, const std::string& name, double within) {
  Speedup speedup{.record = &record, .baseline = baseline};
  if (took_turns(record, name)) {
    auto logs = process_values(record, Quantity::ratio);
    for (auto& ratio : logs) ratio = std::log(ratio);
    speedup.source = SpeedupSource::turns;
    speedup.ratio = estimate_paired_ratio(logs);
    speedup.baseline_ms = record.number("baseline_median_ms");
    set_estimate(speedup, within);
  } else if (is_usable(baseline) && is_usable(&record) && on_same_hosts(*baseline, record)) {
    const auto quantity = best_quantity(*baseline, record);
    speedup.source = quantity == Quantity::ratio ? SpeedupSource::ratios : SpeedupSource::times;
    speedup.ratio = estimate_ratio({process_values(*baseline, quantity), process_values(record, quantity)});
    speedup.baseline_ms = baseline->number("time_median_ms");
    set_estimate(speedup, within);
  }
  return speedup;
}

}  // namespace

std::string source_name(SpeedupSource source) {
  switch (source) {
    case SpeedupSource::turns: return "turns";
    case SpeedupSource::ratios: return "ratios";
    case SpeedupSource::times: return "times";
  }
  return "";
}

std::vector<std::string> baseline_methods(const std::vector<Record>& records) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& record : records) add(record.text("method"));
  for (const auto& record : records)
    if (const auto name = record.text("baseline"); is_method_alone(name) && took_turns(record, name)) add(name);
  return names;
}

std::vector<Speedup> speedups(const std::vector<Record>& records, const std::string& baseline, double within) {
  if (const auto known = baseline_methods(records); std::find(known.begin(), known.end(), baseline) == known.end())
    throw UsageError(fmt::format("no record is of the baseline '{}'{}", baseline, suggestion(baseline, known)));
  std::map<std::string, const Record*> baselines;
  for (const auto& record : records)
    if (record.text("method") == baseline) baselines[record.key_without({"method"})] = &record;
  std::vector<Speedup> all;
  for (const auto& record : records) {
    if (record.text("method") == baseline) continue;
    const auto found = baselines.find(record.key_without({"method"}));
    all.push_back(speedup_of(record, found == baselines.end() ? nullptr : found->second, baseline, within));
  }
  return all;
}

std::vector<Speedup> at_longest_lengths(const std::vector<Speedup>& all) {
  std::vector<Speedup> longest;
  std::map<std::string, size_t> index;
  for (const auto& speedup : all) {
    if (!speedup.is_known) continue;
    const auto [place, is_new] = index.emplace(speedup.record->series_key(), longest.size());
    if (is_new) longest.push_back(speedup);
    else if (auto& best = longest[place->second]; speedup.record->number("query_len") > best.record->number("query_len"))
      best = speedup;
  }
  return longest;
}

std::string default_baseline(const std::vector<Record>& records) {
  const auto known = baseline_methods(records);
  for (const auto& record : records) {
    const auto text = record.text("baseline");
    const auto method = text.substr(0, text.find(' '));
    if (!method.empty() && std::find(known.begin(), known.end(), method) != known.end()) return method;
  }
  const bool several = std::any_of(records.begin(), records.end(),
                                   [&](const Record& r) { return r.text("method") != records.front().text("method"); });
  if (!several) return "";
  return std::find(known.begin(), known.end(), "sdpa") != known.end() ? "sdpa" : records.front().text("method");
}

}  // namespace attnbench
