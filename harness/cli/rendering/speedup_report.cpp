// Implements reports of speedups: the rows and their words, and what the words mean.
#include "harness/cli/rendering/speedup_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/analysis/record_pairs.h"
#include "harness/cli/rendering/answers.h"
#include "harness/cli/rendering/case_names.h"
#include "harness/cli/rendering/record_table.h"
#include "harness/text/json_numbers.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// The ends of the interval of speed_of().
Interval speeds_of(const Interval& log_time_ratios) { return {std::exp(-log_time_ratios.high), std::exp(-log_time_ratios.low)}; }

std::string finding_name(Finding finding) {
  switch (finding) {
    case Finding::slower: return "slower";
    case Finding::faster: return "faster";
    case Finding::equivalent: return "equivalent";
    case Finding::cannot_tell: return "cannot tell";
  }
  return "";
}

std::string state_of(const Record* record) {
  return record && record->measured() && record->has("implausible") ? "implausible" : outcome_of(record);
}

// How the processes of both methods ran.
std::string runs_text(SpeedupSource source) {
  switch (source) {
    case SpeedupSource::turns: return "in turns";
    case SpeedupSource::ratios: return "by ratios";
    case SpeedupSource::times: return "apart";
  }
  return "";
}

// What the words of runs_text() mean that the known speedups have.
std::string runs_in_words(const std::vector<Speedup>& all, const std::string& baseline) {
  const auto any = [&](SpeedupSource source) {
    return std::any_of(all.begin(), all.end(), [&](const Speedup& s) { return s.is_known && s.source == source; });
  };
  std::vector<std::string> meanings;
  if (any(SpeedupSource::turns))
    meanings.push_back(fmt::format(
        "runs is \"in turns\" where processes of the method and of {} were alive together and took samples alternately, so that "
        "what slowed both cancels",
        baseline));
  if (any(SpeedupSource::ratios))
    meanings.push_back(
        fmt::format("runs is \"by ratios\" where the method and {} each took turns with a third method, and their ratios to that "
                    "are compared",
                    baseline));
  if (any(SpeedupSource::times))
    meanings.push_back(fmt::format(
        "runs is \"apart\" where the method and {} ran at different times, so that a change of the machine between them counts",
        baseline));
  return meanings.empty() ? "" : fmt::format("The column {}.", fmt::join(meanings, "; "));
}

std::string verdict_text(const Speedup& speedup, const std::string& baseline) {
  if (speedup.is_known) return speedup.has_verdict() ? finding_name(speedup.finding) : "–";
  const auto own = state_of(speedup.record);
  if (speedup.baseline && own == outcome::measured && !on_same_hosts(*speedup.record, *speedup.baseline))
    return baseline + ": on another host";
  if (own != outcome::measured) return own;
  return speedup.baseline ? fmt::format("{}: {}", baseline, state_of(speedup.baseline)) : fmt::format("no {} record", baseline);
}

Json json_of(const Speedup& speedup) {
  Json axes;
  for (const auto& axis : axis_names()) axes[axis] = speedup.record->get(axis);
  Json item = {{"case", axes},
               {"outcome", state_of(speedup.record)},
               {"baseline_outcome", speedup.is_known ? outcome::measured : state_of(speedup.baseline)},
               {"time_ms", finite_or_null(speedup.record->number("time_median_ms"))}};
  if (!speedup.is_known) return item;
  const auto scope = scope_name(speedup.ratio.scope);
  item["baseline_ms"] = finite_or_null(speedup.baseline_ms);
  item["speedup"] = finite_or_null(speed_of(speedup));
  item["interval"] = scope.empty() ? Json() : json_of(speeds_of(speedup.ratio.ratio.interval));
  item["interval_scope"] = scope.empty() ? Json() : Json(scope);
  item["processes"] = speedup.ratio.processes;
  item["source"] = source_name(speedup.source);
  item["verdict"] = speedup.has_verdict() ? Json(finding_name(speedup.finding)) : Json();
  return item;
}

// The axes besides the method and the lengths in which the speedups differ, such as " protocol=decode".
std::string setting_text(const Speedup& speedup, const std::vector<const Column*>& axes) {
  std::string text;
  for (const auto* axis : axes)
    if (axis->name != "method" && find_axis(axis->name)->kind != AxisKind::length)
      text += fmt::format(" {}={}", axis->name, plain_text(speedup.record->get(axis->name)));
  return text;
}

// How many measured cases have no record of the baseline to compare with, and what measures it; empty if there are none.
std::string missing_in_words(const std::vector<Speedup>& all, const std::string& baseline) {
  const Speedup* first = nullptr;
  size_t count = 0;
  for (const auto& speedup : all) {
    if (speedup.is_known || speedup.baseline || state_of(speedup.record) != outcome::measured) continue;
    if (!first) first = &speedup;
    ++count;
  }
  if (!first) return "";
  return fmt::format(
      "{} cannot be compared, because there is no record of {} with the same axes. `{}` measures {} for the first of them; "
      "a sweep with {} at these lengths adds all to a folder.",
      count_of(count, "case"), baseline, measure_command(*first->record, baseline), baseline, baseline);
}

// How many of the cases have which verdict, as a sentence.
std::string counts_in_words(const std::vector<Speedup>& all, const std::string& baseline, double within) {
  const auto known = size_t(std::count_if(all.begin(), all.end(), [](const Speedup& s) { return s.is_known; }));
  const auto judged = size_t(std::count_if(all.begin(), all.end(), [](const Speedup& s) { return s.has_verdict(); }));
  if (judged == 0)
    return fmt::format("{} of {} cases can be compared with {}, none with a verdict, which needs {} processes.", known,
                       all.size(), baseline, kMinValuesOfInterval);
  const auto count = [&](Finding finding) {
    return std::count_if(all.begin(), all.end(), [&](const Speedup& s) { return s.has_verdict() && s.finding == finding; });
  };
  return fmt::format(
      "Of {} cases with a verdict, {} are faster than {}, {} slower, {} equivalent within {:g} %, and {} cannot be told.", judged,
      count(Finding::faster), baseline, count(Finding::slower), count(Finding::equivalent), 100 * within,
      count(Finding::cannot_tell));
}

}  // namespace

Json json_of(const SpeedupReport& report) {
  Json json = {{"baseline", report.baseline}, {"within_percent", 100 * report.within}, {"cases", Json::array()}};
  for (const auto& speedup : report.speedups) json["cases"].push_back(json_of(speedup));
  return json;
}

void print_report(const SpeedupReport& report, Format format) {
  TextTable table;
  // As text, skipped cases are only counted.
  const auto is_shown = [&](const Speedup& speedup) {
    return format != Format::text || speedup.record->text("outcome") != outcome::skipped;
  };
  std::vector<const Record*> records;
  std::vector<const Speedup*> shown, rows;
  for (const auto& speedup : report.speedups) {
    if (!is_shown(speedup)) continue;
    shown.push_back(&speedup);
    records.push_back(speedup.record);
  }
  for (const auto i : order_of_rows(records)) rows.push_back(shown[i]);
  const auto axes = distinguishing_axes(records);
  add_axes(table, axes);
  add_common_axes(table, records, axes);
  auto all = records;
  for (const auto& speedup : report.speedups)
    if (speedup.baseline) all.push_back(speedup.baseline);
  const auto names = format == Format::csv ? MethodNames() : MethodNames(all);
  const auto& baseline_name = names.of(report.baseline);
  table.add_columns({right("time"), right("time of " + baseline_name), right("times as fast"), right("interval"),
                     right("processes"), "runs", "verdict"});
  auto answers = identifying_axes(records, axes);
  answers.insert(answers.end(), {"times as fast", "interval", "verdict"});
  table.choose({.answers = std::move(answers), .left_out_first = {"runs", "processes"}});
  for (const auto* row : rows) {
    const auto& speedup = *row;
    std::vector<std::string> cells;
    for (const auto* axis : axes) cells.push_back(axis_text(*speedup.record, axis->name, names));
    const auto time = speedup.record->number("time_median_ms");
    if (speedup.is_known) {
      const auto [baseline_ms, ms] = values_of_estimate(speedup.baseline_ms, time, speedup.ratio.ratio.estimate);
      cells.insert(cells.end(), {format_ms(ms, 4), format_ms(baseline_ms, 4), speed_text(speed_of(speedup)),
                                 interval_text(speedup), std::to_string(speedup.ratio.processes), runs_text(speedup.source)});
    } else {
      const auto* baseline = speedup.baseline;
      cells.insert(cells.end(), {format_ms(time, 4), format_ms(baseline ? baseline->number("time_median_ms") : std::nan(""), 4),
                                 "–", "–", "–", "–"});
    }
    cells.push_back(verdict_text(speedup, baseline_name));
    table.add_row(std::move(cells), tone_of(*speedup.record));
  }
  if (format == Format::text) {
    auto answers_in_words = report.answers;
    answers_in_words.push_back(counts_in_words(report.speedups, baseline_name, report.within));
    print_answers(answers_in_words);
  }
  print_table(table, format);
  if (format == Format::csv) return;
  fmt::print("\n");
  if (const auto skipped = report.speedups.size() - records.size(); skipped > 0)
    print_paragraph(fmt::format("Not shown: {}, whose reasons `attnbench table` lists.", count_of(skipped, "skipped case")));
  if (const auto missing = missing_in_words(report.speedups, report.baseline); !missing.empty()) print_paragraph(missing);
  print_paragraph(fmt::format(
      "The interval covers the speedup with 95 % for each case by itself; a range, of fewer than {} processes, has no verdict. "
      "Equivalent means within ±{:g} %. The speedup is estimated from all processes, which can differ a little from the ratio of "
      "the "
      "two medians. The times are the medians, adjusted to it: one is multiplied, and the other divided, by one factor.",
      kMinValuesOfInterval, 100 * report.within));
  if (const auto runs = runs_in_words(report.speedups, baseline_name); !runs.empty()) print_paragraph(runs);
}

std::string speedups_in_words(const std::vector<Record>& records, const std::string& folder) {
  constexpr size_t kMaxLines = 10;
  const auto baseline = records.empty() ? "" : default_baseline(records);
  if (baseline.empty()) return "";
  const auto longest = at_longest_lengths(speedups(records, baseline));
  std::vector<const Record*> shown;
  const MethodNames names(records);
  size_t width = 0;
  for (const auto& speedup : longest) {
    shown.push_back(speedup.record);
    width = std::max(width, display_width(names.of(*speedup.record)));
  }
  const auto axes = distinguishing_axes(shown);
  std::string text;
  for (size_t i = 0; i < std::min(longest.size(), kMaxLines); ++i) {
    const auto& speedup = longest[i];
    const auto method = names.of(*speedup.record);
    const auto interval = speedup.ratio.scope == IntervalScope::none ? "" : fmt::format(" ({})", interval_text(speedup));
    text += fmt::format("{}{}  {} ×{} as fast as {} at N = {}{}\n", method, std::string(width - display_width(method), ' '),
                        speed_text(speed_of(speedup)), interval, names.of(baseline), speedup.record->get("query_len").dump(),
                        setting_text(speedup, axes));
  }
  if (longest.size() > kMaxLines)
    text += fmt::format("… and {} more; `attnbench compare {} --baseline {}` shows all\n", longest.size() - kMaxLines, folder,
                        baseline);
  return text;
}

}  // namespace attnbench
