// Reads waivers, applies them to judgements, and renders the report as text, Markdown and JSON.
#include "harness/gate/gate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "harness/files/toml_file.h"
#include "harness/gate/case_labels.h"
#include "harness/gate/quick_gate.h"
#include "harness/schema/case.h"
#include "harness/statistics/equivalence.h"
#include "harness/sweep/case_runner.h"
#include "harness/text/json_numbers.h"
#include "harness/text/nearest.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

std::string percent(double log_ratio) {
  if (!std::isfinite(log_ratio)) return "–";
  return fmt::format("{:+.1f} %", 100 * std::expm1(log_ratio));
}
// Such as "−1.2 % … +0.9 %"; a dash for the interval of too few pairs, which has no ends.
std::string range(const Interval& interval) {
  if (!std::isfinite(interval.low) && !std::isfinite(interval.high)) return "–";
  return percent(interval.low) + " … " + percent(interval.high);
}
double median_or_nan(const std::vector<double>& values) { return values.empty() ? std::nan("") : median(values); }

Tone tone_of_line(const GateReport::Line& line) {
  if (!line.waived.empty() || line.is_new) return Tone::faint;
  return line.is_unusable || line.memory_regression ? Tone::bad : tone_of(line.judgement.verdict);
}

// The p value of the verdict: the probability of ratios as clear as these if it were wrong. NaN for a case without a verdict.
double p_of(const GateJudgement& judgement) {
  switch (judgement.verdict) {
    case Verdict::regression: return judgement.slower_p;
    case Verdict::improvement: return judgement.faster_p;
    case Verdict::pass: return judgement.margin_p;
    case Verdict::inconclusive: break;
  }
  return std::nan("");
}

// The verdict of a line, and why.
std::string verdict_of(const GateReport::Line& line, const SuiteCase& suite_case, bool with_reason) {
  if (!with_reason) return line.verdict + (line.waived.empty() ? "" : ", waived");
  auto text = line.verdict;
  if (line.memory_regression)
    text += fmt::format(" ({} instead of {})", format_bytes(median_or_nan(suite_case.sides[1].peak_extra_bytes)),
                        format_bytes(median_or_nan(suite_case.sides[0].peak_extra_bytes)));
  if (!line.reason.empty()) text += ": " + line.reason;
  if (!line.waived.empty()) text += ", waived: " + line.waived;
  return text;
}

// Sentences, each of which begins a line or, in Markdown, a paragraph.
class Sentences {
 public:
  explicit Sentences(const TextStyle& style) : style_(style) {}
  void add(std::string sentence) {
    sentence = safe_text(sentence, LineEnds::kept);
    const bool is_markdown = style_.format == TableFormat::markdown;
    if (is_markdown) sentence = markdown_text(sentence);
    else if (style_.max_width > 0) sentence = wrapped(sentence, style_.max_width, 2);
    text_ += sentence + (is_markdown ? "\n\n" : "\n");
  }
  // Lines that are shown as they are.
  void add_block(const std::string& lines) {
    text_ += style_.format == TableFormat::markdown ? "```toml\n" + lines + "```\n\n" : "\n" + lines + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  TextStyle style_;
  std::string text_;
};

// Says what a quick gate left undecided, and how it can be decided.
void add_undecided(Sentences& sentences, const GateReport& report, const GateOptions& options) {
  const auto& lines = report.lines;
  const auto undecided = std::count_if(lines.begin(), lines.end(), [](const auto& line) { return line.is_undecided; });
  if (!options.plan.is_quick || undecided == 0) return;
  auto sentence = fmt::format("{} of {} {} not decided", undecided, count_of(lines.size(), "case"), is_or_are(undecided));
  if (std::any_of(lines.begin(), lines.end(),
                  [](const auto& line) { return line.failed && line.judgement.verdict == Verdict::regression; }))
    sentence += ", because a quick gate stops at the first regression";
  sentences.add(sentence + (std::isnan(report.full_gate_s)
                                ? "; a full gate, without --quick, has no time limit"
                                : "; a full gate, without --quick, would take at most " + format_seconds(report.full_gate_s)));
}

// Says how the regressions can be accepted.
void add_waivers(Sentences& sentences, const GateReport& report, const GateOptions& options) {
  std::string tables;
  for (const auto& line : report.lines)
    if (line.failed) tables += fmt::format("[[waive]]\ncase = {}\nreason = \"WHY\"\n", Json(line.name).dump());
  if (tables.empty()) return;
  sentences.add(options.waivers.empty()
                    ? "To accept this knowingly, write these lines with your reason into a file, and give its name to --waivers:"
                    : fmt::format("To accept this knowingly, add these lines with your reason to {}:", options.waivers));
  sentences.add_block(tables);
}

}  // namespace

Tone tone_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::regression: return Tone::bad;
    case Verdict::improvement: return Tone::good;
    case Verdict::inconclusive: return Tone::warning;
    case Verdict::pass: break;
  }
  return Tone::plain;
}

const char* result_name(GateResult result) {
  switch (result) {
    case GateResult::pass: return "pass";
    case GateResult::regression: return "regression";
    case GateResult::unusable: return "unusable";
    case GateResult::inconclusive: return "inconclusive";
  }
  return "";
}

Json json_of(const GateReport& report, const GateSuite& suite, const GateOptions& options) {
  const auto& plan = options.plan;
  const auto compared =
      size_t(std::count_if(suite.cases().begin(), suite.cases().end(), [](const SuiteCase& c) { return c.is_compared(); }));
  Json json = {{"finished_at", now_utc()},      {"result", result_name(report.result)}, {"measure", suite.what_is_measured()},
               {"alpha", plan.criteria.alpha},  {"min_shift", plan.criteria.min_shift}, {"margin", plan.criteria.margin},
               {"pass_alpha", plan.pass_alpha}, {"looks", looks_of(compared, plan)},    {"quick", plan.is_quick}};
  if (plan.is_quick) {
    json["time_limit_s"] = options.time_limit_s;
    json["full_gate_s"] = finite_or_null(report.full_gate_s);
  }
  for (const auto& side : suite.sides()) {
    json[side.name] = {{"revision", side.environment.get("revision")},
                       {"dirty", side.environment.get("dirty")},
                       {"build", side.environment.get("build")},
                       {"cpu_model", side.environment.get("cpu_model")},
                       {"processors", side.environment.get("processors")}};
    if (!side.source.is_null()) json[side.name]["source"] = side.source;
  }
  json["cases"] = Json::array();
  for (size_t i = 0; i < report.lines.size(); ++i) {
    const auto &base = suite.cases()[i].sides[0], &candidate = suite.cases()[i].sides[1];
    const auto& line = report.lines[i];
    const auto& label = suite.cases()[i].label;
    json["cases"].push_back({{"name", line.name},
                             {"label", label.empty() ? Json() : Json(label)},
                             {"verdict", line.verdict},
                             {"reason", line.reason.empty() ? Json() : Json(line.reason)},
                             {"waived", line.waived.empty() ? Json() : Json(line.waived)},
                             {"log_ratio", finite_or_null(line.judgement.ratio.estimate)},
                             {"interval", json_of(line.judgement.ratio.interval)},
                             {"slower_p", line.judgement.slower_p},
                             {"faster_p", line.judgement.faster_p},
                             {"margin_p", line.judgement.margin_p},
                             {"unit", suite.cases()[i].measure ? Json(suite.cases()[i].measure->unit) : Json()},
                             {"base", base.medians},
                             {"candidate", candidate.medians},
                             {"log_ratios", candidate.log_ratios},
                             {"base_peak_extra_bytes", base.peak_extra_bytes},
                             {"candidate_peak_extra_bytes", candidate.peak_extra_bytes},
                             {"implementation", candidate.implementation}});
  }
  return json;
}

// A build executes the same number of instructions every time, so that a count has neither an interval nor a p value.
TextTable table_of(const GateReport& report, const GateSuite& suite, const std::vector<size_t>& lines, bool with_reasons) {
  const bool instructions = suite.options().instructions;
  TextTable table({"case", right("base"), right("candidate"), right("change")},
                  {.answers = {"case", "change", "95 % interval", "verdict"}, .left_out_first = {"pairs", "base", "candidate"}});
  if (!instructions) table.add_columns({right("95 % interval"), right("p"), right("pairs")});
  table.add_columns({"verdict"});
  for (const auto i : lines) {
    const auto& line = report.lines[i];
    const auto& [estimate, interval] = line.judgement.ratio;
    const auto &base = suite.cases()[i].sides[0].medians, &candidate = suite.cases()[i].sides[1].medians;
    const bool judged = !base.empty() && !candidate.empty();
    const auto& measure = suite.cases()[i].measure;
    const auto value = [&](double x) {
      if (measure) return value_text(*measure, x);
      return instructions ? number_text(x, "{:.6g}") : format_ms(x, 4);
    };
    ValuesOfEstimate shown = {median_or_nan(base), median_or_nan(candidate)};
    if (judged && std::isfinite(estimate))
      shown = values_of_estimate(shown.a, shown.b, measure && measure->more_is_better ? -estimate : estimate);
    std::vector<std::string> row = {line.label, value(shown.a), value(shown.b), judged ? percent(estimate) : "–"};
    if (!instructions)
      row.insert(row.end(),
                 {judged ? range(interval) : "–", number_text(p_of(line.judgement), "{:.2g}"), std::to_string(line.processes)});
    row.push_back(verdict_of(line, suite.cases()[i], with_reasons));
    table.add_row(std::move(row), tone_of_line(line));
  }
  return table;
}

std::string findings_of(const GateReport& report, const GateSuite& suite, const GateOptions& options, const TextStyle& style) {
  const auto& lines = report.lines;
  Sentences before(style), after(style);
  if (!report.shared.empty()) before.add(fmt::format("{}: {}", count_of(lines.size(), "case"), report.shared));
  for (const auto& line : lines) {
    if (!line.reason.empty()) after.add(fmt::format("{}: {}: {}", line.label, line.verdict, line.reason));
    if (!line.waived.empty()) after.add(fmt::format("{}: waived: {}", line.label, line.waived));
  }
  if (std::all_of(lines.begin(), lines.end(), [](const auto& line) { return line.is_new; }))
    after.add("nothing was compared, because every case is new");
  if (suite.options().instructions)
    after.add(fmt::format("instructions of {} calls on one thread, by callgrind, on the AVX2 kernels", kCountedCalls));
  add_undecided(after, report, options);
  add_waivers(after, report, options);
  std::vector<size_t> all(lines.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return before.text() + table_of(report, suite, all, false).render(style.format, style.colours, style.max_width) + "\n" +
         after.text();
}

std::string explanation_of(const GateSuite& suite, const GateOptions& options) {
  if (suite.options().instructions) return "";
  const auto& criteria = options.plan.criteria;
  return fmt::format(
      "A regression is slower by more than {:.3g} %, a pass by less than {:.3g} %. p is the probability of ratios as clear as "
      "these "
      "if the verdict were wrong: below {:.3g} over all cases for a regression, below {:.3g} for a pass.",
      100 * criteria.min_shift, 100 * criteria.margin, criteria.alpha, options.plan.pass_alpha);
}

std::string text_of(const GateReport& report, const GateSuite& suite, const GateOptions& options, const TextStyle& style) {
  const auto& lines = report.lines;
  Sentences end(style);
  // A table without a p value needs no explanation.
  if (std::any_of(lines.begin(), lines.end(), [](const auto& line) { return line.processes > 0; }))
    if (const auto explanation = explanation_of(suite, options); !explanation.empty()) end.add(explanation);
  return findings_of(report, suite, options, style) + end.text() + fmt::format("gate: {}\n", result_name(report.result));
}

Waivers read_waivers(const std::string& path, const std::vector<std::string>& names) {
  Waivers waivers;
  std::map<std::string, uint32_t> lines;  // of the waiver of each case
  if (path.empty()) return waivers;
  const auto file = read_toml(path);
  const auto fail = [&](const toml::node& node, const std::string& message) { fail_at(path, node.source(), message); };
  for (const auto& [key, value] : file) {
    if (key.str() != "waive" || !value.is_array_of_tables())
      fail(value, fmt::format("found '{}', expected only [[waive]] tables", key.str()));
    for (const auto& item : *value.as_array()) {
      const auto& table = *item.as_table();
      for (const auto& [name, entry] : table)
        if ((name.str() != "case" && name.str() != "reason") || !entry.is_string())
          fail(entry, fmt::format("'{}' in [[waive]], expected case and reason as text", name.str()));
      const auto name = table["case"].value_or<std::string>(""), reason = table["reason"].value_or<std::string>("");
      if (name.empty()) fail(item, "a waiver names no case, expected case and reason");
      if (reason.empty()) fail(item, fmt::format("the waiver of '{}' has no reason, expected case and reason", name));
      if (std::find(names.begin(), names.end(), name) == names.end())
        fail(item, fmt::format("the suite has no case '{}'{}", name, suggestion(name, names)));
      const auto [first, is_new] = lines.emplace(name, item.source().begin.line);
      if (!is_new)
        fail(item, fmt::format("'{}' is waived twice, here and in line {}, expected one waiver of a case", name, first->second));
      waivers[name] = reason;
    }
  }
  return waivers;
}

GateReport report_of(const std::vector<SuiteCase>& suite, const std::vector<GateJudgement>& judgements, const Waivers& waivers,
                     const GateOptions& options) {
  GateReport report;
  std::vector<Case> cases;
  std::vector<std::pair<std::string, std::string>> methods;
  for (const auto& suite_case : suite) {
    cases.push_back(suite_case.c);
    methods.emplace_back(suite_case.c.method, suite_case.label);
  }
  // A command's benchmarks have only names.
  const bool is_foreign = !suite.empty() && suite[0].measure.has_value();
  auto labels = is_foreign ? CaseLabels() : label_cases(cases, MethodNames(methods));
  if (is_foreign)
    for (const auto& suite_case : suite) labels.names.push_back(suite_case.name);
  report.shared = std::move(labels.shared);
  bool any[4] = {};
  for (size_t i = 0; i < suite.size(); ++i) {
    const auto& c = suite[i];
    auto& line = report.lines.emplace_back();
    line.name = c.name;
    line.label = labels.names[i];
    line.judgement = judgements.at(i);
    line.processes = std::max(c.sides[0].medians.size(), c.sides[1].medians.size());
    const auto &before = c.sides[0].peak_extra_bytes, &after = c.sides[1].peak_extra_bytes;
    if (!before.empty() && !after.empty())
      line.memory_regression = *std::min_element(after.begin(), after.end()) >
                               *std::max_element(before.begin(), before.end()) * (1 + options.memory_shift);
    auto result = GateResult::pass;
    if (!c.unusable.empty()) {
      result = GateResult::unusable;
      line.is_unusable = true;
      line.verdict = "unusable";
      line.reason = c.unusable;
    } else if (c.is_new()) {
      line.is_new = true;
      line.verdict = "new";
      line.reason = c.lacking;
    } else {
      line.is_undecided = line.judgement.verdict == Verdict::inconclusive && options.plan.is_quick;
      line.verdict = line.is_undecided ? "not decided" : verdict_name(line.judgement.verdict);
      if (line.judgement.verdict == Verdict::inconclusive) result = GateResult::inconclusive;
      if (line.judgement.verdict == Verdict::regression || line.memory_regression) result = GateResult::regression;
      if (line.memory_regression)
        line.verdict += line.judgement.verdict == Verdict::regression ? ", memory too" : ", regression in memory";
    }
    const auto waiver = waivers.find(c.name);
    if (waiver != waivers.end() && result != GateResult::pass) line.waived = waiver->second;
    else any[size_t(result)] = true;
    line.failed = result == GateResult::regression && line.waived.empty();
  }
  // A regression outweighs unusable and inconclusive cases, because it is certain whatever those cases would have shown.
  for (const auto result : {GateResult::regression, GateResult::unusable, GateResult::inconclusive})
    if (any[size_t(result)]) {
      report.result = result;
      break;
    }
  return report;
}

}  // namespace attnbench
