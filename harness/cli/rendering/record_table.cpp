// Chooses the columns of tables of records, and writes their cells and the warnings below them.
#include "harness/cli/rendering/record_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "harness/cli/rendering/case_names.h"
#include "harness/statistics/disturbance.h"
#include "harness/statistics/equivalence.h"
#include "harness/statistics/statistics.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

std::string error_text(double error) { return std::isnan(error) ? "–" : fmt::format("{:.1e}", error); }

// The distance from the middle to the farther end of the interval, divided by the middle; NaN where any of them is.
double reach(double middle, const Interval& interval) { return std::max(interval.high - middle, middle - interval.low) / middle; }

// What is not a 95 % interval is called what it is: the range of a few processes, or the spread within one.
std::string interval_text(const Record& r) {
  const auto reach = relative_reach(r);
  if (std::isnan(reach)) return "";
  const auto scope = r.text("time_ci_scope");
  return fmt::format("{}±{:.1f} %",
                     scope == scope_name(IntervalScope::range_of_processes) ? "range "
                     : scope == kSpreadWithinProcess                        ? "spread "
                                                                            : "",
                     100 * reach);
}

// Whether the case was to run beside a baseline.
bool has_baseline(const Record& r) { return r.has("ratio_pairing") || r.has("ratio_reason"); }

// Why there is no ratio to the baseline.
std::string why_no_ratio(const Record& r) {
  return (r.has("ratio_failure_kind") ? r.text("ratio_failure_kind") + ": " : "") + r.text("ratio_reason");
}

// The ratio to the baseline with the distance to the farther end of its interval, such as "0.123 ±1.2 %".
std::string ratio_text(const Record& r) {
  const auto ratio = r.number("ratio_median");
  if (std::isnan(ratio)) return has_baseline(r) ? "none" : "";
  const auto reach = relative_reach_of_ratio(r);
  return fmt::format("{:.3g}{}", ratio, std::isnan(reach) ? "" : fmt::format(" ±{:.1f} %", 100 * reach));
}

// The baselines that records were to run beside.
std::set<std::string> baselines_of(const std::vector<const Record*>& records, const MethodNames& names) {
  std::set<std::string> baselines;
  for (const auto* record : records)
    if (has_baseline(*record)) baselines.insert(names.baseline_name(*record));
  return baselines;
}

// The header of the column of ratios; empty if no record has one.
std::string ratio_header(const std::vector<const Record*>& records, const MethodNames& names) {
  const auto baselines = baselines_of(records, names);
  if (baselines.empty()) return "";
  return baselines.size() == 1 ? "time / " + *baselines.begin() : "time / baseline";
}

// Empty for `none`.
std::string warning_word(Warning warning) {
  constexpr const char* words[] = {"", "implausible", "suspect", "disturbed", "noisy"};
  return words[size_t(warning)];
}

std::string outcome_text(const Record& r) {
  if (r.has("external_source")) return "external: " + r.text("external_source");
  const auto warning = warning_about(r);
  const auto word = warning_word(warning);
  const auto* const unverified = r.get("unverified") == true ? ", unverified" : "";
  if (r.measured())
    return (word.empty() ? "measured" : warning == Warning::implausible ? word : "measured, " + word) + unverified;
  return fmt::format("{}: {}", r.text("outcome"), r.text("failure_kind"));
}

std::string published_text(const Record& r) {
  std::string text = r.text("published_outcome");
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (r.has("published_time_ms")) add(format_ms(r.number("published_time_ms")));
  if (r.has("published_memory_bytes")) add(format_bytes(r.number("published_memory_bytes")));
  return text;
}

// Where the record was measured: "2 threads" or the name of the GPU.
std::string place_of(const Record& record) {
  if (record.text("device") == "cuda") return record.has("gpu") ? record.text("gpu") : "the GPU";
  return count_of(int64_t(record.number("threads")), "thread");
}

std::string value_text(const Record& record, const Column& column) {
  const auto& value = record.get(column.name);
  if (value.is_null()) return "";
  if (column.unit == "ms" && value.is_number()) return format_ms(value.get<double>());
  if (column.unit == "B" && value.is_number()) return format_bytes(value.get<double>());
  if (column.unit == "s") return fmt::format("{:.3g} s", value.get<double>());
  if (value.is_number_float()) return fmt::format("{:.3g}", value.get<double>());
  return plain_text(value);
}

}  // namespace

Warning warning_about(const Record& record) {
  if (record.has("implausible")) return Warning::implausible;
  if (record.has("suspect")) return Warning::suspect;
  if (record.number("disturbed_processes") > 0) return Warning::disturbed;
  return noise_of_time(record) > noise_limit(record) ? Warning::noisy : Warning::none;
}

double noise_limit(const Record& record) {
  const auto target = record.number("noise_target");
  return std::isnan(target) ? kUsualReach : std::max(target, kUsualReach);
}

double relative_reach(const Record& record) {
  return reach(record.number("time_median_ms"), {record.number("time_ci_low_ms"), record.number("time_ci_high_ms")});
}

double noise_of_time(const Record& record) {
  if (record.text("time_ci_scope") != kSpreadWithinProcess) return relative_reach(record);
  const auto samples =
      counted(record.numbers("time_samples_ms"), record.numbers("sample_disturbances"), record.number("max_disturbance"));
  return samples.values.empty() ? std::nan("") : reach(median(samples.values), order_statistic_interval(samples.values));
}

double relative_reach_of_ratio(const Record& record) {
  return reach(record.number("ratio_median"), {record.number("ratio_ci_low"), record.number("ratio_ci_high")});
}

std::string plain_text(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string axis_text(const Record& record, const std::string& axis, const MethodNames& names) {
  return axis == "method" ? names.of(record) : plain_text(record.get(axis));
}

std::vector<const Column*> distinguishing_axes(const std::vector<const Record*>& records,
                                               const std::vector<std::string>& left_out) {
  std::vector<const Column*> axes;
  for (const auto& field : fields()) {
    if (field.role != FieldRole::axis || std::find(left_out.begin(), left_out.end(), field.name) != left_out.end()) continue;
    std::set<std::string> values;
    for (const auto* record : records) values.insert(plain_text(record->get(field.name)));
    const bool only_follows = !field.follows.empty() && std::all_of(records.begin(), records.end(), [&](const auto* r) {
      return r->get(field.name) == r->get(field.follows);
    });
    const bool always = field.name == "method" || field.name == "query_len";
    if ((values.size() > 1 || always) && !only_follows) axes.push_back(find_column(field.name));
  }
  return axes;
}

std::vector<std::string> axes_that_tell_apart(const std::vector<const Record*>& records, const std::vector<std::string>& first,
                                              const std::vector<std::string>& candidates) {
  std::vector<std::string> found, keys(records.size());
  const auto add_to_keys = [&](const std::string& axis) {
    for (size_t i = 0; i < records.size(); ++i) keys[i] += plain_text(records[i]->get(axis)) + "\n";
  };
  for (const auto& axis : first) add_to_keys(axis);
  for (const auto& axis : candidates) {
    std::map<std::string, std::string> value_by_key;
    bool is_needed = false;
    for (size_t i = 0; i < records.size(); ++i) {
      const auto value = plain_text(records[i]->get(axis));
      is_needed = is_needed || value_by_key.emplace(keys[i], value).first->second != value;
    }
    if (!is_needed) continue;
    found.push_back(axis);
    add_to_keys(axis);
  }
  return found;
}

std::vector<std::string> identifying_axes(const std::vector<const Record*>& records, const std::vector<const Column*>& axes) {
  std::vector<std::string> names, others;
  for (const auto* axis : axes) (axis->name == "method" || axis->name == "query_len" ? names : others).push_back(axis->name);
  const auto needed = axes_that_tell_apart(records, names, others);
  names.insert(names.end(), needed.begin(), needed.end());
  return names;
}

void add_common_axes(TextTable& table, const std::vector<const Record*>& records, const std::vector<const Column*>& shown) {
  if (records.empty()) return;
  for (const auto* name : {"device", "dtype", "protocol", "batch", "heads", "head_dim", "causal", "threads"}) {
    const auto is_this = [&](const Column* column) { return column->name == name; };
    const auto& value = records.front()->get(name);
    const bool is_common = std::all_of(records.begin(), records.end(), [&](const auto* r) { return r->get(name) == value; });
    if (is_common && !value.is_null() && std::none_of(shown.begin(), shown.end(), is_this))
      table.add_common(name, plain_text(value));
  }
}

void add_axes(TextTable& table, const std::vector<const Column*>& axes) {
  for (const auto* axis : axes) table.add_columns({axis->type == ColumnType::integer ? right(axis->name) : axis->name});
}

TextTable summary_table(const std::vector<Record>& records) {
  std::vector<const Record*> all;
  for (const auto& record : records) all.push_back(&record);
  return summary_table_of(all);
}

TextTable summary_table_of(const std::vector<const Record*>& records) {
  TextTable table;
  const auto axes = distinguishing_axes(records);
  add_axes(table, axes);
  add_common_axes(table, records, axes);
  const bool published = std::any_of(records.begin(), records.end(), [](const auto* r) { return !published_text(*r).empty(); });
  const MethodNames names(records);
  const auto ratio = ratio_header(records, names);
  table.add_columns({right("time"), right("time/sequence"), right("interval")});
  if (!ratio.empty()) table.add_columns({right(ratio)});
  table.add_columns({right("memory/sequence"), right("rounding error"), "implementation", "outcome"});
  if (published) table.add_columns({"published"});
  // Of different batches, only the times of a sequence can be compared. Of one sequence a call, both times are the same.
  const auto has_any = [&](const auto& is) { return std::any_of(records.begin(), records.end(), is); };
  const bool per_sequence = has_any([](const auto* r) { return r->number("batch") != 1; });
  auto answers = identifying_axes(records, axes);
  if (per_sequence) std::erase(answers, "batch");
  answers.insert(answers.end(), {per_sequence ? "time/sequence" : "time", "interval"});
  if (!ratio.empty()) answers.push_back(ratio);
  if (has_any([&](const auto* r) { return outcome_text(*r) != outcome_text(*records.front()); })) answers.emplace_back("outcome");
  std::vector<std::string> others = {"published", "implementation", "rounding error", per_sequence ? "time" : "time/sequence"};
  for (const auto* axis : axes) others.push_back(axis->name);
  table.choose({.answers = std::move(answers), .left_out_first = std::move(others)});
  for (const auto* each : records) {
    const auto& record = *each;
    std::vector<std::string> cells;
    for (const auto* axis : axes) cells.push_back(axis_text(record, axis->name, names));
    cells.push_back(format_ms(record.number("time_median_ms")));
    cells.push_back(format_ms(record.number("time_per_sample_ms")));
    cells.push_back(interval_text(record));
    if (!ratio.empty()) cells.push_back(ratio_text(record));
    cells.push_back(format_bytes(record.number("peak_extra_bytes_per_sample")));
    cells.push_back(record.get("unverified") == true ? "unverified" : error_text(record.number("max_rel_error")));
    cells.push_back(record.text("implementation"));
    cells.push_back(outcome_text(record));
    if (published) cells.push_back(published_text(record));
    table.add_row(std::move(cells), tone_of(record));
  }
  return table;
}

TextTable column_table(const std::vector<Record>& records, const std::vector<std::string>& names) {
  std::vector<const Record*> all;
  for (const auto& record : records) all.push_back(&record);
  const auto known = table_columns(all);
  std::vector<std::string> known_names;
  for (const auto& column : known) known_names.push_back(column.name);

  TextTable table;
  for (const auto& name : names) {
    const auto* column = find_column(name);
    if (!column && std::find(known_names.begin(), known_names.end(), name) == known_names.end())
      throw UsageError(fmt::format("unknown column '{}'{}", name, suggestion(name, known_names)));
    // A name that is no column is the name of a diagnostic, and diagnostics are numbers.
    const bool number = !column || column->type == ColumnType::integer || column->type == ColumnType::number;
    table.add_columns({number ? right(name) : name});
  }
  table.choose({.answers = names});
  for (const auto* record : all) {
    std::vector<std::string> cells;
    for (const auto& name : names) cells.push_back(plain_text(record->get(name)));
    table.add_row(std::move(cells));
  }
  return table;
}

std::vector<std::string> skipped_in_words(const std::vector<Record>& records) {
  std::vector<std::string> kinds;
  std::map<std::string, std::vector<const Record*>> skipped;
  for (const auto& record : records) {
    if (record.text("outcome") != outcome::skipped) continue;
    auto& of_kind = skipped[record.text("failure_kind")];
    if (of_kind.empty()) kinds.push_back(record.text("failure_kind"));
    of_kind.push_back(&record);
  }
  const CaseNames names(records);
  std::vector<std::string> lines;
  for (const auto& kind : kinds) {
    const auto& cases = skipped.at(kind);
    const auto reason = cases.front()->text("reason");
    const bool is_shared = std::all_of(cases.begin(), cases.end(), [&](const auto* r) { return r->text("reason") == reason; });
    lines.push_back(fmt::format("{} {} skipped as {}{}: {}", count_of(cases.size(), "case"), is_or_are(cases.size()), kind,
                                is_shared ? "" : ", for example " + names.of(*cases.front()), reason));
  }
  return lines;
}

std::vector<std::string> legend_of(const std::vector<const Record*>& records) {
  const auto any = [&](const auto& is) { return std::any_of(records.begin(), records.end(), is); };
  const auto has_scope = [&](const std::string& scope) {
    return any([&](const auto* r) { return !std::isnan(relative_reach(*r)) && r->text("time_ci_scope") == scope; });
  };
  const auto warns = [&](Warning warning) {
    return any([&](const auto* r) { return r->measured() && warning_about(*r) == warning; });
  };
  std::vector<std::string> sentences, reaches;
  if (has_scope(scope_name(IntervalScope::across_processes))) reaches.emplace_back("the 95 % interval across processes");
  if (has_scope(scope_name(IntervalScope::range_of_processes)))
    reaches.emplace_back("after \"range\" the range of two to five processes, too few for a 95 % interval");
  if (has_scope(kSpreadWithinProcess)) reaches.emplace_back("after \"spread\" the middle half of the samples of one process");
  if (!reaches.empty())
    sentences.push_back(
        fmt::format("±: how far the interval of a time reaches to its farther end; it is {}.", fmt::join(reaches, "; ")));
  if (const auto baselines = baselines_of(records, MethodNames(records)); baselines.size() > 1)
    sentences.push_back(fmt::format("The baseline of a case is {}, as its column baseline says.", fmt::join(baselines, " or ")));
  if (warns(Warning::noisy))
    sentences.push_back(fmt::format("noisy: the interval reaches further than {:.0f} %, or than the noise target of the sweep.",
                                    100 * kUsualReach));
  if (warns(Warning::disturbed)) sentences.emplace_back("disturbed: other load left some processes too few undisturbed samples.");
  if (any([](const auto* r) { return r->has("published_source") && !published_text(*r).empty(); })) {
    std::vector<std::string> sources;  // without what they say of a single case
    for (const auto* record : records) {
      const auto text = record->text("published_source");
      const auto source = text.substr(0, text.find(": "));
      if (!source.empty() && std::find(sources.begin(), sources.end(), source) == sources.end()) sources.push_back(source);
    }
    sentences.push_back(
        fmt::format("The column published has the outcome, time or memory of the case in {}.", fmt::join(sources, "; ")));
  }
  return sentences;
}

std::vector<size_t> order_of_rows(const std::vector<const Record*>& records) {
  std::map<std::string, size_t> methods, settings;  // in the order in which they are first seen
  using Key = std::tuple<size_t, size_t, double, double, double>;
  std::vector<Key> keys;
  for (const auto* record : records) {
    std::string setting;
    for (const auto& field : fields())
      if (field.role == FieldRole::axis && field.kind != AxisKind::length && field.name != "method" && field.name != "batch")
        append_to_case_key(setting, field, record->get(field.name));
    const auto number = [&](const char* axis) { return record->has(axis) ? record->number(axis) : 0.0; };
    keys.emplace_back(methods.emplace(record->text("method"), methods.size()).first->second,
                      settings.emplace(setting, settings.size()).first->second, number("query_len"), number("key_len"),
                      number("batch"));
  }
  std::vector<size_t> order(records.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) { return keys[one] < keys[other]; });
  return order;
}

Sheet answer_of(const Record& record) {
  const auto line = [](std::string name, std::string value) { return SheetLine{"", std::move(name), std::move(value)}; };
  Sheet sheet;
  if (!record.measured()) {
    sheet.push_back(line("outcome", fmt::format("{}: {}", record.text("outcome"), record.text("failure_kind"))));
    sheet.push_back(line("reason", record.text("reason")));
    return sheet;
  }
  const auto batch = record.number("batch");
  sheet.push_back(line("time", fmt::format("{} {}, in {} of {}", format_ms(record.number("time_median_ms")),
                                           interval_text(record), count_of(int64_t(record.number("processes")), "process"),
                                           count_of(int64_t(record.number("samples")), "sample"))));
  if (record.has("setup_s")) sheet.push_back(line("setup", format_ms(1e3 * record.number("setup_s")) + " before the first call"));
  const auto error = record.get("unverified") == true
                         ? std::string("unverified, without a reference")
                         : fmt::format("rounding error {} (at most {} accepted)", error_text(record.number("max_rel_error")),
                                       error_text(record.number("error_tolerance")));
  sheet.push_back(line("memory", fmt::format("{} above the inputs; {}", format_bytes(record.number("peak_extra_bytes")), error)));
  sheet.push_back(line("implementation", fmt::format("{} on {}{}", record.text("implementation"), place_of(record),
                                                     batch > 1 ? fmt::format(", batch {:.0f}", batch) : "")));
  if (has_baseline(record))
    sheet.push_back(line("time / " + MethodNames({&record}).baseline_name(record),
                         ratio_text(record) + (record.has("ratio_median") ? "" : ": " + why_no_ratio(record))));
  for (const auto* column : {"implausible", "suspect"})
    if (record.has(column)) sheet.push_back(line(column, record.text(column)));
  if (const auto warning = warning_about(record); warning == Warning::noisy || warning == Warning::disturbed)
    sheet.push_back(
        line("warning", (warning == Warning::noisy ? fmt::format("noisier than usual, so a difference of up to {:.0f} % from "
                                                                 "another case may be noise",
                                                                 100 * noise_of_time(record))
                                                   : "disturbed by other load") +
                            "; `attnbench doctor --noise` says what helps"));
  return sheet;
}

std::string result_in_words(const Record& record) {
  if (!record.measured())
    return fmt::format("{}: {} ({})", record.text("outcome"), record.text("failure_kind"), record.text("reason"));
  return fmt::format("{} {}, {} above the inputs{}", format_ms(record.number("time_median_ms")), interval_text(record),
                     format_bytes(record.number("peak_extra_bytes")), record.get("unverified") == true ? ", unverified" : "");
}

Tone tone_of(const Record& record) {
  if (record.text("outcome") == outcome::failed) return Tone::bad;
  if (record.text("outcome") == outcome::skipped) return Tone::faint;
  const auto warning = warning_about(record);
  return warning == Warning::none || warning == Warning::noisy ? Tone::plain : Tone::warning;
}

std::string text_of(const Sheet& sheet, size_t max_width) {
  constexpr size_t kIndent = 31;
  std::string text, group;
  for (const auto& line : sheet) {
    if (line.group != group && !line.group.empty()) text += (group.empty() ? "" : "\n") + line.group + "\n";
    group = line.group;
    // A terminal that leaves the values too little space beside their names wraps the lines itself.
    const auto value = max_width >= 2 * kIndent ? wrapped(line.value, max_width, kIndent) : line.value;
    text += fmt::format("  {:<28} {}\n", line.name, value);
  }
  return text;
}

Sheet sheet_of(const Record& record) {
  Sheet sheet;
  for (const auto& column : table_columns({&record}))
    if (record.has(column.name) && column.type != ColumnType::numbers && record.get(column.name) != Json(""))
      sheet.push_back({column.group, column.name, value_text(record, column)});
  return sheet;
}

}  // namespace attnbench
