#include "harness/cli/comparison_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/cli/record_table.h"
#include "harness/process/interrupts.h"
#include "harness/text/errors.h"
#include "harness/text/json_numbers.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

bool is_condition(const Column& column) {
  return find_axis(column.name) || column.group == "environment" || column.group == "setting" ||
         column.name == "implementation" || column.name == "gpu" || column.name == "external_source";
}

std::vector<Difference> differences_of(const std::vector<RecordPair>& pairs) {
  std::vector<const Record*> records;
  for (const auto& pair : pairs)
    for (const auto* record : {pair.a, pair.b})
      if (record) records.push_back(record);
  std::vector<Difference> found;
  for (const auto& column : table_columns(records)) {
    if (!is_condition(column)) continue;
    std::set<std::string> a, b;
    bool differs = false;
    for (const auto& pair : pairs) {
      if (!pair.a || !pair.b) continue;
      const auto &left = pair.a->get(column.name), &right = pair.b->get(column.name);
      differs = differs || left != right;
      a.insert(left.is_null() ? "–" : plain_text(left));
      b.insert(right.is_null() ? "–" : plain_text(right));
    }
    if (differs) found.push_back({column.name, fmt::format("{}", fmt::join(a, ", ")), fmt::format("{}", fmt::join(b, ", "))});
  }
  return found;
}

std::optional<Quantity> quantity_of(const RecordPair& pair, std::optional<Quantity> asked) {
  if (!pair.both_measured()) return std::nullopt;
  if (asked == Quantity::ratio && !have_common_baseline(*pair.a, *pair.b)) return std::nullopt;
  return asked ? *asked : best_quantity(*pair.a, *pair.b);
}

std::string verdict_text(const ComparedPair& c) {
  if (!c.pair.both_measured()) return fmt::format("{} | {}", outcome_of(c.pair.a), outcome_of(c.pair.b));
  if (!c.quantity) return "no ratios to a common baseline";
  const auto& comparison = c.comparison;
  const auto name = verdict_name(comparison.finding);
  if (comparison.finding != Finding::cannot_tell || comparison.can_differ) return name;
  if (comparison.estimate.processes == 1) return name + ": only one process on a side";
  return fmt::format("{}: {} processes a side are too few", name, comparison.estimate.processes);
}

double number_of(const Record* record, const char* column) { return record ? record->number(column) : std::nan(""); }

// How many of the findings there are of each kind, such as "3 of 4 cases equivalent, 1 cannot tell".
std::string counts_in_words(const std::vector<Finding>& findings) {
  std::vector<std::string> parts;
  for (const auto finding : {Finding::slower, Finding::faster, Finding::equivalent, Finding::cannot_tell})
    if (const auto count = std::count(findings.begin(), findings.end(), finding); count > 0)
      parts.push_back(fmt::format("{} {}", count, verdict_name(finding)));
  return fmt::format("{} compared: {}", count_of(findings.size(), "case"),
                     parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", ")));
}

void print_differences(const ComparisonReport& report, Format format) {
  if (report.differences.empty()) return;
  TextTable table;
  for (const auto* header : {"what differs", "a", "b"}) table.add_column(header);
  for (const auto& [column, a, b] : report.differences) table.add_row({column, a, b});
  print_table(table, format);
  fmt::print("\n");
}

void print_cases(const ComparisonReport& report, Format format) {
  TextTable table;
  std::vector<const Record*> records;
  for (const auto& c : report.cases) records.push_back(&c.pair.either());
  const auto axes = distinguishing_axes(records, report.apart);
  const bool shows_ratios =
      std::any_of(report.cases.begin(), report.cases.end(), [](const ComparedPair& c) { return c.quantity == Quantity::ratio; });
  add_axes(table, axes);
  const auto add_numbers = [&](std::initializer_list<const char*> headers) {
    for (const auto* header : headers) table.add_column(header, TextTable::Align::right);
  };
  add_numbers({"time a", "time b"});
  if (shows_ratios) add_numbers({"time b / a", "ratio a", "ratio b"});
  if (shows_ratios) table.add_column("compared");
  add_numbers({"b / a", "interval", "memory a", "memory b"});
  table.add_column("verdict on b");
  for (const auto& c : report.cases) {
    std::vector<std::string> cells;
    for (const auto* axis : axes) cells.push_back(plain_text(c.pair.either().get(axis->name)));
    const double time_a = number_of(c.pair.a, "time_median_ms"), time_b = number_of(c.pair.b, "time_median_ms");
    cells.insert(cells.end(), {format_ms(time_a), format_ms(time_b)});
    if (shows_ratios) {
      cells.push_back(ratio_text(std::log(time_b / time_a)));
      for (const auto* values : {&c.values.a, &c.values.b})
        cells.push_back(c.quantity == Quantity::ratio ? fmt::format("{:.4g}", median(*values)) : "–");
      cells.push_back(c.quantity ? quantity_name(*c.quantity) : "–");
    }
    cells.push_back(c.quantity ? ratio_text(c.comparison.estimate.ratio.estimate) : "–");
    cells.push_back(c.quantity ? interval_text(c.comparison.estimate) : "–");
    for (const auto* record : {c.pair.a, c.pair.b}) cells.push_back(format_bytes(number_of(record, "peak_extra_bytes")));
    cells.push_back(verdict_text(c));
    const bool is_judged = c.quantity && c.comparison.estimate.processes > 1;
    table.add_row(std::move(cells), is_judged ? tone_of(c.comparison.finding) : Tone::plain);
  }
  print_table(table, format);
}

}  // namespace

std::vector<Finding> ComparisonReport::findings() const {
  std::vector<Finding> found;
  for (const auto& c : cases)
    if (c.quantity) found.push_back(c.comparison.finding);
  return found;
}

ComparisonReport compare_records(const std::vector<RecordPair>& pairs, const std::vector<std::string>& apart,
                                 std::optional<Quantity> quantity, const EquivalenceCriteria& criteria) {
  ComparisonReport report{criteria, apart, {}, differences_of(pairs)};
  std::vector<TwoSides> sides;
  bool any_measured = false;
  for (const auto& pair : pairs) {
    auto& c = report.cases.emplace_back(ComparedPair{pair, quantity_of(pair, quantity), {}, {}});
    any_measured = any_measured || pair.both_measured();
    if (!c.quantity) continue;
    c.values = {process_values(*pair.a, *c.quantity), process_values(*pair.b, *c.quantity)};
    sides.push_back(c.values);
  }
  if (any_measured && sides.empty())
    throw UsageError(
        "no case has ratios to the same baseline on both sides, expected records of a sweep with the setting baseline; "
        "--quantity time compares times");
  const auto comparisons = compare_sides(sides, criteria, throw_if_interrupted);
  size_t next = 0;
  for (auto& c : report.cases)
    if (c.quantity) c.comparison = comparisons[next++];
  return report;
}

Json json_of(const ComparisonReport& report) {
  const auto findings = report.findings();
  Json json = {{"verdict", verdict_name(overall_finding(findings))},
               {"alpha", report.criteria.alpha},
               {"within_percent", 100 * report.criteria.within},
               {"differences", Json::array()},
               {"cases", Json::array()}};
  for (const auto finding : {Finding::slower, Finding::faster, Finding::equivalent, Finding::cannot_tell})
    json["counts"][verdict_name(finding)] = std::count(findings.begin(), findings.end(), finding);
  for (const auto& [column, a, b] : report.differences) json["differences"].push_back({{"column", column}, {"a", a}, {"b", b}});
  for (const auto& c : report.cases) {
    Json axes;
    for (const auto& axis : axis_names()) axes[axis] = c.pair.either().get(axis);
    Json item = {{"case", axes}, {"a", outcome_of(c.pair.a)}, {"b", outcome_of(c.pair.b)}};
    item["a_ms"] = finite_or_null(number_of(c.pair.a, "time_median_ms"));
    item["b_ms"] = finite_or_null(number_of(c.pair.b, "time_median_ms"));
    item["a_peak_extra_bytes"] = c.pair.a ? c.pair.a->get("peak_extra_bytes") : Json();
    item["b_peak_extra_bytes"] = c.pair.b ? c.pair.b->get("peak_extra_bytes") : Json();
    if (c.quantity) {
      const auto& estimate = c.comparison.estimate;
      item["quantity"] = quantity_name(*c.quantity);
      item["a_value"] = median(c.values.a);
      item["b_value"] = median(c.values.b);
      item["processes"] = estimate.processes;
      item["log_ratio"] = finite_or_null(estimate.ratio.estimate);
      item["interval"] = json_of(estimate.ratio.interval);
      item["interval_scope"] = estimate.scope == IntervalScope::none ? Json() : Json(scope_name(estimate.scope));
      item["equivalence_interval"] = json_of(estimate.equivalence);
      item["adjusted_p"] = c.comparison.adjusted_p;
      item["verdict"] = verdict_name(c.comparison.finding);
    }
    json["cases"].push_back(std::move(item));
  }
  return json;
}

void print_report(const ComparisonReport& report, Format format) {
  print_differences(report, format);
  print_cases(report, format);
  if (format == Format::csv) return;
  const auto findings = report.findings();
  fmt::print(
      "\nover all: {}; {}\n"
      "A case is different if its Holm-adjusted p is below {:g} and its ratio is beyond ±{:g} %, and equivalent if the 90 % "
      "interval of its ratio lies within ±{:g} %.\n",
      verdict_name(overall_finding(findings)), counts_in_words(findings), report.criteria.alpha, 100 * report.criteria.within,
      100 * report.criteria.within);
}

std::string shortage_in_words(const ComparisonReport& report) {
  const auto cases = report.findings().size();
  size_t fewest = 0;
  for (const auto& c : report.cases)
    if (c.quantity && !c.comparison.can_differ)
      fewest = fewest == 0 ? c.comparison.estimate.processes : std::min(fewest, c.comparison.estimate.processes);
  if (fewest == 0) return "";
  const auto needed = processes_to_decide(cases, report.criteria.alpha);
  return fmt::format(
      "{} a side cannot find any of {} different at the level {:g}; at least {} are needed, which "
      "`attnbench sweep SWEEP --out FOLDER --set timing.processes={}` adds to a folder\n",
      count_of(fewest, "process"), count_of(cases, "case"), report.criteria.alpha, needed, needed);
}

std::string verdict_name(Finding finding) {
  switch (finding) {
    case Finding::slower: return "regression";
    case Finding::faster: return "improvement";
    case Finding::equivalent: return "equivalent";
    case Finding::cannot_tell: return "cannot tell";
  }
  return "";
}

Tone tone_of(Finding finding) {
  switch (finding) {
    case Finding::slower: return Tone::bad;
    case Finding::faster: return Tone::good;
    case Finding::cannot_tell: return Tone::warning;
    case Finding::equivalent: break;
  }
  return Tone::plain;
}

std::string ratio_text(double log_ratio) { return std::isfinite(log_ratio) ? fmt::format("{:.3f}×", std::exp(log_ratio)) : "–"; }

std::string interval_text(const RatioEstimate& estimate) {
  if (estimate.scope == IntervalScope::none) return "–";
  return fmt::format("{}{} … {}", estimate.scope == IntervalScope::range_of_processes ? "range " : "",
                     ratio_text(estimate.ratio.interval.low), ratio_text(estimate.ratio.interval.high));
}

}  // namespace attnbench
