// Compares two series at the lengths that both measured, and judges whether and where their order changes.
#include "harness/analysis/crossover.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "harness/analysis/record_pairs.h"
#include "harness/process/interrupts.h"
#include "harness/schema/case.h"
#include "harness/text/json_numbers.h"

namespace attnbench {
namespace {

// From this ratio of its ends on, the interval of a crossover says too little.
constexpr double kWideFactor = 2;
// Numbers of operations that differ by no more than this count as equal, because the formulas count all operations alike, however
// long they take.
constexpr double kEqualWork = 0.05;

// log(one / other) at one length: above zero where `other` needs less.
struct Difference {
  double length = 0, value = 0;
  Interval interval;
  RatioBasis basis = RatioBasis::records;
  bool equal_flops = false;

  bool excludes_zero() const { return interval.low > 0 || interval.high < 0; }
};

// A positive value with its interval.
struct Estimate {
  double value = 0;
  Interval interval;
};

// The difference of two independent values, whose intervals are combined as independent errors.
Difference difference_of_estimates(const Estimate& one, const Estimate& other) {
  Difference found;
  found.value = std::log(one.value / other.value);
  const double below = std::hypot(std::log(one.interval.low / one.value), std::log(other.interval.high / other.value));
  const double above = std::hypot(std::log(one.interval.high / one.value), std::log(other.interval.low / other.value));
  found.interval = {found.value - below, found.value + above};
  // An end of a recorded interval may be missing or zero.
  if (!(found.interval.low <= found.interval.high)) found.interval = {-INFINITY, INFINITY};
  return found;
}

// The difference from values of processes of the same rounds.
Difference difference_of_processes(const std::vector<double>& one, const std::vector<double>& other) {
  std::vector<double> logarithms;
  for (size_t i = 0; i < one.size(); ++i) logarithms.push_back(std::log(one[i] / other[i]));
  Difference found;
  found.value = median(logarithms);
  found.interval = order_statistic_interval(std::move(logarithms));
  return found;
}

std::optional<Difference> paired(const Record& one, const Record& other, std::string_view column) {
  const auto values = values_of_same_rounds({&one, &other}, column);
  if (values.empty()) return std::nullopt;
  return difference_of_processes(values[0], values[1]);
}

// The difference by the ratios to a baseline. Two cases that differ in another axis than the method have different baselines,
// even where the setting is the same.
std::optional<Difference> by_baseline(const Record& one, const Record& other) {
  if (one.text("baseline").empty() || one.text("baseline") != other.text("baseline")) return std::nullopt;
  const auto is_positive = [](double ratio) { return ratio > 0; };  // not if it is missing, which is NaN
  if (!is_positive(one.number("ratio_median")) || !is_positive(other.number("ratio_median"))) return std::nullopt;
  if (auto found = paired(one, other, "process_ratios")) return found;
  const auto ratio_of = [](const Record& record) {
    return Estimate{record.number("ratio_median"), {record.number("ratio_ci_low"), record.number("ratio_ci_high")}};
  };
  return difference_of_estimates(ratio_of(one), ratio_of(other));
}

Difference difference_at(const Point& one, const Point& other, const Crossover& pair) {
  const bool methods_differ = pair.differs == std::vector<std::string>{"method"};
  const auto finished = [&](Difference found, RatioBasis basis) {
    found.length = one.length;
    found.basis = basis;
    const double ratio = one.record->number("flops") / other.record->number("flops");
    found.equal_flops = std::abs(std::log(ratio)) <= std::log1p(kEqualWork);
    return found;
  };
  const Estimate mine = {one.value, one.interval}, theirs = {other.value, other.interval};
  if (pair.quantity == "memory") return finished(difference_of_estimates(mine, theirs), RatioBasis::counted);
  if (methods_differ)
    if (const auto found = by_baseline(*one.record, *other.record)) return finished(*found, RatioBasis::baseline);
  if (const auto found = paired(*one.record, *other.record, "process_medians_ms")) return finished(*found, RatioBasis::processes);
  return finished(difference_of_estimates(mine, theirs), RatioBasis::records);
}

// The differences at the lengths that both series measured with the same batch size. Of several batch sizes of a length, the one
// that the first series recorded last counts.
std::vector<Difference> differences_of(const Crossover& pair) {
  std::vector<Difference> found;
  const auto theirs = pair.other->points(pair.quantity);
  for (const auto& mine : pair.one->points(pair.quantity)) {
    const auto same = std::find_if(theirs.begin(), theirs.end(),
                                   [&](const Point& p) { return p.length == mine.length && p.batch == mine.batch; });
    if (same == theirs.end()) continue;
    if (pair.quantity == "time" && !on_same_hosts(*mine.record, *same->record)) continue;
    if (!found.empty() && found.back().length == mine.length) found.pop_back();
    found.push_back(difference_at(mine, *same, pair));
  }
  return found;
}

void judge_crossing(Crossover& found, const std::vector<Difference>& differences, bool equal_work) {
  const double low = found.interval.low, high = found.interval.high;
  const auto returns = [&](const Difference& d) {
    return d.length > high && !(found.other_needs_less_at_first ? d.interval.high < 0 : d.interval.low > 0);
  };
  if (equal_work) found.doubt = Doubt::equal_work;
  else if (!std::isfinite(high) || !(low > 0) || high >= kWideFactor * low) found.doubt = Doubt::wide;
  else if (std::any_of(differences.begin(), differences.end(), returns)) found.doubt = Doubt::returns;
  else found.verdict = CrossoverVerdict::crosses;
}

void judge_order(Crossover& found, const std::vector<Difference>& differences) {
  const auto all = [&](const auto& condition) { return std::all_of(differences.begin(), differences.end(), condition); };
  if (all([](const Difference& d) { return d.excludes_zero(); })) found.verdict = CrossoverVerdict::never;
  else if (found.quantity == "memory" && all([](const Difference& d) { return d.value == 0; }))
    found.verdict = CrossoverVerdict::equal;
  else found.doubt = Doubt::noise;
}

// Equal for series that differ in compared axes only.
std::string key_of_comparable(const Series& series) {
  std::string key;
  for (const auto& [axis, value] : series.setting)
    if (const auto* field = find_axis(axis); !field->compared) append_to_setting_key(key, *field, value);
  return key;
}

// The pair without a verdict; nothing for series that differ in an axis that is not compared.
std::optional<Crossover> pair_of(const Series& one, const Series& other, const std::string& quantity) {
  Crossover pair;
  pair.one = &one;
  pair.other = &other;
  pair.quantity = quantity;
  for (const auto& [axis, value] : one.setting) {
    if (value == other.setting.at(axis)) continue;
    if (!find_axis(axis)->compared) return std::nullopt;
    pair.differs.push_back(axis);
  }
  // A difference between two methods on two devices could be due to either. Full attention is compared with what computes fewer
  // pairs, whatever computes it.
  const auto differ_in = [&](const char* axis) { return std::count(pair.differs.begin(), pair.differs.end(), axis) > 0; };
  const auto is_full = [](const Series& series) { return series.setting.at("pattern") == "all"; };
  const bool by_pattern = pair.differs.size() == 2 && differ_in("pattern") && (is_full(one) || is_full(other));
  if (differ_in("method") && pair.differs.size() > 1 && !by_pattern) return std::nullopt;
  return pair;
}

std::optional<Crossover> crossover_of(const Series& one, const Series& other, const std::string& quantity, const Json& methods) {
  auto found = pair_of(one, other, quantity);
  if (!found) return std::nullopt;
  const auto differences = differences_of(*found);
  if (differences.size() < 2) return std::nullopt;
  found->from = differences.front().length;
  found->to = differences.back().length;
  found->other_needs_less_at_first = differences.front().value > 0;
  std::vector<double> x, values;
  std::vector<Interval> intervals;
  found->basis = differences.front().basis;
  for (const auto& difference : differences) {
    x.push_back(std::log2(difference.length));
    values.push_back(difference.value);
    intervals.push_back(difference.interval);
    found->basis = std::min(found->basis, difference.basis);
  }
  const auto crossing = first_crossing(x, values, intervals);
  if (!crossing) {
    judge_order(*found, differences);
    return found;
  }
  found->length = std::exp2(crossing->at);
  found->interval = {std::exp2(crossing->interval.low), std::exp2(crossing->interval.high)};
  const auto above = std::find_if(differences.begin() + 1, differences.end() - 1,
                                  [&](const Difference& d) { return std::log2(d.length) >= crossing->at; });
  found->between = {std::prev(above)->length, above->length};
  const auto order = declared_order(one, quantity, methods);
  const bool equal_work = quantity == "time" && found->differs == std::vector<std::string>{"method"} && !order.empty() &&
                          order == declared_order(other, quantity, methods) &&
                          std::all_of(differences.begin(), differences.end(), [](const auto& d) { return d.equal_flops; });
  judge_crossing(*found, differences, equal_work);
  return found;
}

}  // namespace

std::string_view verdict_name(CrossoverVerdict verdict) {
  constexpr std::string_view names[] = {"crosses", "never crosses", "equal", "cannot tell"};
  return names[size_t(verdict)];
}

std::string_view reason_of(Doubt doubt) {
  constexpr std::string_view names[] = {"", "the interval covers a factor of two or more", "both methods do equal work",
                                        "the interval of the ratio contains 1 again at a longer length",
                                        "the interval of the ratio contains 1 at a length"};
  return names[size_t(doubt)];
}

std::string_view basis_name(RatioBasis basis) {
  constexpr std::string_view names[] = {"records", "processes", "baseline", "counted"};
  return names[size_t(basis)];
}

std::vector<Crossover> crossovers_of(const std::vector<Series>& series, const Json& methods) {
  std::unordered_map<std::string, std::vector<size_t>> comparable;
  std::vector<const std::vector<size_t>*> others;  // of each series, those that may be compared with it, and itself
  for (size_t i = 0; i < series.size(); ++i) {
    auto& group = comparable[key_of_comparable(series[i])];
    group.push_back(i);
    others.push_back(&group);
  }
  std::vector<Crossover> all;
  for (size_t i = 0; i < series.size(); ++i) {
    throw_if_interrupted();
    for (const auto j : *others[i])
      for (const auto* quantity : {"time", "memory"})
        if (j > i)
          if (auto found = crossover_of(series[i], series[j], quantity, methods)) all.push_back(std::move(*found));
  }
  return all;
}

Json json_of(const Crossover& found) {
  return {{"one", json_of(*found.one)},
          {"other", json_of(*found.other)},
          {"quantity", found.quantity},
          {"differs", found.differs},
          {"from_length", found.from},
          {"to_length", found.to},
          {"length", found.length ? Json(*found.length) : Json()},
          {"interval", found.length ? json_of(found.interval) : Json()},
          {"between", found.length ? json_of(found.between) : Json()},
          {"interval_basis", basis_name(found.basis)},
          {"other_needs_less_at_first", found.other_needs_less_at_first},
          {"verdict", verdict_name(found.verdict)},
          {"reason", reason_of(found.doubt)}};
}

}  // namespace attnbench
