// Judges the pairs of records of two folders, and renders the judgements with the conditions that differ.
#include "harness/cli/rendering/comparison_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/cli/rendering/answers.h"
#include "harness/cli/rendering/record_table.h"
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
  if (!c.pair.both_measured()) return fmt::format("a {}, b {}", outcome_of(c.pair.a), outcome_of(c.pair.b));
  if (!c.quantity) return "no ratios to a common baseline";
  const auto& comparison = c.comparison;
  const auto name = verdict_name(comparison.finding);
  if (comparison.finding != Finding::cannot_tell || comparison.can_differ) return name;
  if (comparison.estimate.processes == 1) return name + ": only one process on a side";
  return fmt::format("{}: {} processes a side are too few", name, comparison.estimate.processes);
}

double number_of(const Record* record, const char* column) { return record ? record->number(column) : std::nan(""); }

// The value that was compared: a time, or how many times that of the baseline a case takes.
std::string value_text(double value, Quantity quantity) {
  return quantity == Quantity::time ? format_ms(value, 4) : fmt::format("{:#.4g}", value);
}

// The interval that decides, after its level: "95 %: 1.100 … 1.300".
std::string decisive_interval_text(const CaseComparison& comparison) {
  if (comparison.estimate.scope == IntervalScope::none) return "–";
  const auto [interval, percent] = decisive_interval(comparison.estimate, comparison.finding);
  const auto end = [](double log_ratio) { return std::isfinite(log_ratio) ? fmt::format("{:.3f}", std::exp(log_ratio)) : "–"; };
  return fmt::format("{}: {} … {}", percent > 0 ? fmt::format("{} %", percent) : "range", end(interval.low), end(interval.high));
}

// Every record of the report.
std::vector<const Record*> records_of(const ComparisonReport& report) {
  std::vector<const Record*> records;
  for (const auto& c : report.cases)
    for (const auto* record : {c.pair.a, c.pair.b})
      if (record) records.push_back(record);
  return records;
}

// The name of a case among others, such as "linear N=512 protocol=forward".
std::string name_of(const Record& record, const std::vector<std::string>& axes, const MethodNames& names) {
  auto name = fmt::format("{} N={}", names.of(record), record.get("query_len").dump());
  for (const auto& axis : axes)
    if (axis != "method" && axis != "query_len") name += fmt::format(" {}={}", axis, plain_text(record.get(axis)));
  return name;
}

// The case with this finding that is the furthest from equality, with its ratio, such as
// "most in linear N=512, where b / a is 1.200× (95 %: 1.198 … 1.202)".
std::string furthest_in_words(const ComparisonReport& report, Finding finding) {
  std::vector<const Record*> records;
  const ComparedPair* furthest = nullptr;
  for (const auto& c : report.cases) {
    records.push_back(&c.pair.either());
    if (!c.quantity || c.comparison.finding != finding) continue;
    const auto distance = [](const ComparedPair& pair) { return std::abs(pair.comparison.estimate.ratio.estimate); };
    if (!furthest || distance(c) > distance(*furthest)) furthest = &c;
  }
  const auto axes = identifying_axes(records, distinguishing_axes(records, report.apart));
  return fmt::format("most in {}, where b / a is {} ({})",
                     name_of(furthest->pair.either(), axes, MethodNames(records_of(report))),
                     ratio_text(furthest->comparison.estimate.ratio.estimate), decisive_interval_text(furthest->comparison));
}

// What was compared.
std::string quantity_in_words(const ComparisonReport& report) {
  const auto any = [&](Quantity quantity) {
    return std::any_of(report.cases.begin(), report.cases.end(), [&](const auto& c) { return c.quantity == quantity; });
  };
  if (!any(Quantity::ratio)) return "times";
  if (any(Quantity::time)) return "times, or the ratios to a baseline where both have them,";
  std::set<std::string> baselines;
  const MethodNames names(records_of(report));
  for (const auto& c : report.cases)
    if (c.quantity) baselines.insert(names.baseline_name(*c.pair.a));
  return baselines.size() == 1 ? "ratios to the baseline " + *baselines.begin() : "ratios to the baselines";
}

// Why cases cannot be told, after their number.
std::string doubt_in_words(const ComparisonReport& report) {
  double low = 0, high = 0;
  size_t cases = 0, too_few = 0;
  for (const auto& c : report.cases) {
    if (!c.quantity || c.comparison.finding != Finding::cannot_tell) continue;
    ++cases;
    if (!c.comparison.can_differ) ++too_few;
    const auto& interval = c.comparison.estimate.ratio.interval;
    if (std::isfinite(interval.low)) low = std::min(low, interval.low);
    if (std::isfinite(interval.high)) high = std::max(high, interval.high);
  }
  if (too_few == cases) return fmt::format("{} cannot be told, because a side has too few processes", cases);
  auto text = fmt::format("{} cannot be told, because {} {:.3f}× to {:.3f}×, {} not exclude a difference of {:g} %", cases,
                          cases == 1 ? "its interval," : "their intervals, together from", std::exp(low), std::exp(high),
                          cases == 1 ? "does" : "do", 100 * report.criteria.within);
  return too_few == 0 ? text
                      : fmt::format("{}, and {} of them {} too few processes", text, too_few, too_few == 1 ? "has" : "have");
}

// The largest differences, how many cases have which verdict, and why others have none. Where cases differ, the verdict over all
// comes first.
std::string answer_in_words(const ComparisonReport& report) {
  const auto findings = report.findings();
  if (findings.empty()) return "No case can be compared, because none was measured on both sides.";
  const auto count = [&](Finding finding) { return std::count(findings.begin(), findings.end(), finding); };
  std::vector<std::string> parts;
  for (const auto& [finding, word] : {std::pair(Finding::slower, "slower"), std::pair(Finding::faster, "faster")})
    if (count(finding) > 0)
      parts.push_back(fmt::format("b is {} than a in {} of {}, {}", word, count(finding), count_of(findings.size(), "case"),
                                  furthest_in_words(report, finding)));
  const auto overall = overall_finding(findings);
  auto text = parts.empty()
                  ? fmt::format("The {} of {} were compared, and none is found to be slower or faster in b",
                                quantity_in_words(report), count_of(findings.size(), "case"))
                  : fmt::format("Over all: {}{}. {}", verdict_name(overall),
                                overall == Finding::cannot_tell ? ", because a case that cannot be told may be slower" : "",
                                fmt::join(parts, "; "));
  text += fmt::format("{} {} {} equivalent within {:g} %", parts.empty() ? "." : ";", count(Finding::equivalent),
                      is_or_are(count(Finding::equivalent)), 100 * report.criteria.within);
  return text + (count(Finding::cannot_tell) == 0 ? "." : fmt::format("; {}.", doubt_in_words(report)));
}

void print_differences(const ComparisonReport& report, Format format) {
  if (report.differences.empty()) return;
  TextTable table({"what differs", "a", "b"}, {.answers = {"what differs", "a", "b"}});
  const auto shown = [](const std::string& column, const std::string& value) {
    const auto* known = find_column(column);
    const bool is_size = known && known->unit == "B" && value.find_first_not_of("0123456789") == std::string::npos;
    return is_size ? format_bytes(std::stod(value)) : value;
  };
  for (const auto& [column, a, b] : report.differences) table.add_row({column, shown(column, a), shown(column, b)});
  print_table(table, format);
  fmt::print("\n");
}

// What was compared, such as "time" or "time / sdpa".
std::string compared_text(const ComparedPair& c, const MethodNames& names) {
  if (!c.quantity) return "–";
  return *c.quantity == Quantity::time ? "time" : "time / " + names.baseline_name(*c.pair.a);
}

// Whether a table has a row for the case. As text, cases that neither side measured are only counted.
bool is_shown(const ComparedPair& c, Format format) {
  const auto is_measured = [](const Record* record) { return record && record->measured(); };
  return format != Format::text || is_measured(c.pair.a) || is_measured(c.pair.b) || outcome_of(c.pair.a) != outcome_of(c.pair.b);
}

// The cases of the table, in the order of its rows.
std::vector<const ComparedPair*> rows_of(const ComparisonReport& report, Format format) {
  std::vector<const ComparedPair*> shown, rows;
  std::vector<const Record*> records;
  for (const auto& c : report.cases) {
    if (!is_shown(c, format)) continue;
    shown.push_back(&c);
    records.push_back(&c.pair.either());
  }
  for (const auto i : order_of_rows(records)) rows.push_back(shown[i]);
  return rows;
}

void print_cases(const ComparisonReport& report, Format format) {
  TextTable table;
  std::vector<const Record*> records;
  const auto rows = rows_of(report, format);
  for (const auto* c : rows) records.push_back(&c->pair.either());
  const auto axes = distinguishing_axes(records, report.apart);
  const auto names = format == Format::csv ? MethodNames() : MethodNames(records_of(report));
  add_axes(table, axes);
  table.add_columns(
      {"compared", right("a"), right("b"), right("b / a"), "interval", "verdict on b", right("memory a"), right("memory b")});
  auto answers = identifying_axes(records, axes);
  answers.insert(answers.end(), {"b / a", "interval", "verdict on b"});
  std::vector<std::string> others = {"memory a", "memory b"};
  for (const auto* axis : axes) others.push_back(axis->name);
  others.insert(others.end(), {"compared", "a", "b"});
  table.choose({.answers = std::move(answers), .left_out_first = std::move(others)});
  auto shown_apart = axes;
  for (const auto& axis : report.apart) shown_apart.push_back(find_column(axis));
  add_common_axes(table, records, shown_apart);
  for (const auto* row : rows) {
    const auto& c = *row;
    std::vector<std::string> cells;
    for (const auto* axis : axes) cells.push_back(axis_text(c.pair.either(), axis->name, names));
    cells.push_back(compared_text(c, names));
    if (c.quantity) {
      const auto log_ratio = c.comparison.estimate.ratio.estimate;
      const auto [a, b] = values_of_estimate(median(c.values.a), median(c.values.b), log_ratio);
      cells.insert(cells.end(), {value_text(a, *c.quantity), value_text(b, *c.quantity), ratio_text(log_ratio),
                                 decisive_interval_text(c.comparison)});
    } else {
      for (const auto* record : {c.pair.a, c.pair.b}) cells.push_back(format_ms(number_of(record, "time_median_ms"), 4));
      cells.insert(cells.end(), {"–", "–"});
    }
    cells.push_back(verdict_text(c));
    for (const auto* record : {c.pair.a, c.pair.b}) cells.push_back(format_bytes(number_of(record, "peak_extra_bytes")));
    const bool is_judged = c.quantity && c.comparison.estimate.processes > 1;
    table.add_row(std::move(cells), is_judged ? tone_of(c.comparison.finding) : Tone::plain);
  }
  print_table(table, format);
}

// By how much the times of the cases whose ratios were compared differ, which the ratios leave out; empty if there are none.
std::string drift_in_words(const ComparisonReport& report) {
  std::vector<double> factors;
  for (const auto& c : report.cases)
    if (c.quantity == Quantity::ratio) factors.push_back(c.pair.b->number("time_median_ms") / c.pair.a->number("time_median_ms"));
  if (factors.empty()) return "";
  const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
  return fmt::format(
      "What slowed a case and its baseline alike does not count. The times themselves are {:.3f}× as long in b (the median of "
      "these cases; the least is {:.3f}×, the most {:.3f}×), and --quantity time compares them.",
      median(factors), *least, *most);
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
  ComparisonReport report{criteria, apart, {}, differences_of(pairs), {}, {}};
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
      const auto [a, b] = values_of_estimate(median(c.values.a), median(c.values.b), estimate.ratio.estimate);
      item["a_estimate"] = finite_or_null(a);
      item["b_estimate"] = finite_or_null(b);
      item["processes"] = estimate.processes;
      item["log_ratio"] = finite_or_null(estimate.ratio.estimate);
      item["interval"] = json_of(estimate.ratio.interval);
      item["interval_scope"] = estimate.scope == IntervalScope::none ? Json() : Json(scope_name(estimate.scope));
      item["equivalence_interval"] = json_of(estimate.equivalence);
      const auto decisive = decisive_interval(estimate, c.comparison.finding);
      item["decisive_interval"] = json_of(decisive.interval);
      item["decisive_level"] = decisive.percent > 0 ? Json(decisive.percent / 100.0) : Json();
      item["adjusted_p"] = c.comparison.adjusted_p;
      item["verdict"] = verdict_name(c.comparison.finding);
    }
    json["cases"].push_back(std::move(item));
  }
  return json;
}

void print_report(const ComparisonReport& report, Format format) {
  if (format != Format::csv) {
    std::vector<std::string> sentences = {answer_in_words(report)};
    if (auto drift = drift_in_words(report); !drift.empty()) sentences.push_back(std::move(drift));
    sentences.push_back(fmt::format("a is {}, and b is {}.", report.a, report.b));
    if (format == Format::markdown)
      for (auto& sentence : sentences) sentence = markdown_text(sentence);
    print_answers(sentences);
  }
  print_differences(report, format);
  print_cases(report, format);
  if (format == Format::csv) return;
  fmt::print("\n");
  print_paragraph(fmt::format(
      "Where b / a is above 1×, b is slower. It is estimated from all pairs of a process of a and one of b; the columns a and b "
      "are the medians, moved a little so that their ratio is this estimate. A case is different if its Holm-adjusted p is below "
      "{:g} and its ratio is beyond ±{:g} %, and equivalent if the 90 % interval of its ratio lies within ±{:g} %. The column "
      "interval shows the 90 % interval of an equivalent case, and the 95 % interval of any other or, of fewer than {} processes "
      "a side, their range.",
      report.criteria.alpha, 100 * report.criteria.within, 100 * report.criteria.within, kMinValuesOfInterval));
  const auto hidden =
      std::count_if(report.cases.begin(), report.cases.end(), [&](const auto& c) { return !is_shown(c, format); });
  if (hidden > 0) print_paragraph(fmt::format("Not shown: {} that neither side measured.", count_of(hidden, "case")));
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

}  // namespace attnbench
