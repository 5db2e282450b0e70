#include "harness/gate/gate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/schema/case.h"
#include "harness/statistics/equivalence.h"
#include "harness/sweep/case_runner.h"
#include "harness/text/json_numbers.h"
#include "harness/text/nearest.h"
#include "harness/text/toml_file.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

std::string percent(double log_ratio) {
  if (!std::isfinite(log_ratio)) return "–";
  return fmt::format("{:+.1f} %", 100 * std::expm1(log_ratio));
}
double median_or_nan(const std::vector<double>& values) { return values.empty() ? std::nan("") : median(values); }

Tone tone_of_line(const GateReport::Line& line) {
  if (!line.waived.empty() || line.is_new) return Tone::faint;
  return line.verdict.starts_with("unusable") || line.memory_regression ? Tone::bad : tone_of(line.judgement.verdict);
}

// A table with a row for each case.
TextTable table_of(const GateReport& report, const GateSuite& suite) {
  const bool instructions = suite.options().instructions;
  TextTable table;
  table.add_column("case");
  for (const auto* header : {"base", "candidate", "change", "95 %", "p (slower)", "p (margin)", "processes"})
    table.add_column(header, TextTable::Align::right);
  table.add_column("verdict");
  table.answer_with({"case", "change", "95 %", "verdict"});
  table.leave_out_first({"p (margin)", "p (slower)", "processes", "base", "candidate"});
  const auto value = [&](double x) { return instructions ? fmt::format("{:.6g}", x) : format_ms(x, 4); };
  for (size_t i = 0; i < report.lines.size(); ++i) {
    const auto& line = report.lines[i];
    const auto& [estimate, interval] = line.judgement.ratio;
    const auto &base = suite.cases()[i].sides[0].medians, &candidate = suite.cases()[i].sides[1].medians;
    const bool judged = !base.empty() && !candidate.empty();
    ValuesOfEstimate shown = {median_or_nan(base), median_or_nan(candidate)};
    if (judged && std::isfinite(estimate)) shown = values_of_estimate(shown.a, shown.b, estimate);
    table.add_row({line.name, value(shown.a), value(shown.b), judged ? percent(estimate) : "–",
                   judged && !instructions ? percent(interval.low) + " … " + percent(interval.high) : "–",
                   judged && !instructions ? fmt::format("{:.2g}", line.judgement.slower_p) : "–",
                   judged && !instructions ? fmt::format("{:.2g}", line.judgement.margin_p) : "–", std::to_string(line.processes),
                   line.verdict + (line.waived.empty() ? "" : " (waived: " + line.waived + ")")},
                  tone_of_line(line));
  }
  return table;
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

Json json_of(const GateReport& report, const GateSuite& suite, const GatePlan& plan) {
  Json json = {{"finished_at", now_utc()},
               {"result", result_name(report.result)},
               {"measure", suite.options().instructions ? "instructions on AVX2 kernels" : "time"},
               {"alpha", plan.criteria.alpha},
               {"min_shift", plan.criteria.min_shift},
               {"margin", plan.criteria.margin},
               {"pass_alpha", plan.pass_alpha},
               {"looks", plan.looks}};
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
    json["cases"].push_back({{"name", line.name},
                             {"verdict", line.verdict},
                             {"waived", line.waived.empty() ? Json() : Json(line.waived)},
                             {"log_ratio", finite_or_null(line.judgement.ratio.estimate)},
                             {"interval", json_of(line.judgement.ratio.interval)},
                             {"slower_p", line.judgement.slower_p},
                             {"faster_p", line.judgement.faster_p},
                             {"margin_p", line.judgement.margin_p},
                             {"base", base.medians},
                             {"candidate", candidate.medians},
                             {"log_ratios", candidate.log_ratios},
                             {"base_peak_extra_bytes", base.peak_extra_bytes},
                             {"candidate_peak_extra_bytes", candidate.peak_extra_bytes},
                             {"implementation", candidate.implementation}});
  }
  return json;
}

std::string text_of(const GateReport& report, const GateSuite& suite, TableFormat format, bool colours, size_t max_width) {
  auto text = table_of(report, suite).render(format, colours, max_width) + "\n";
  if (std::all_of(report.lines.begin(), report.lines.end(), [](const auto& line) { return line.is_new; }))
    text += "nothing was compared, because every case is new\n";
  if (suite.options().instructions)
    text += fmt::format("instructions of {} calls on one thread, by callgrind, on the AVX2 kernels\n", kCountedCalls);
  return text + fmt::format("gate: {}\n", result_name(report.result));
}

Waivers read_waivers(const std::string& path, const std::vector<std::string>& names) {
  Waivers waivers;
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
      waivers[name] = reason;
    }
  }
  return waivers;
}

GateReport report_of(const std::vector<SuiteCase>& suite, const std::vector<GateJudgement>& judgements, const Waivers& waivers,
                     double memory_shift) {
  GateReport report;
  bool any[4] = {};
  for (size_t i = 0; i < suite.size(); ++i) {
    const auto& c = suite[i];
    auto& line = report.lines.emplace_back();
    line.name = c.name;
    line.judgement = judgements.at(i);
    line.processes = std::max(c.sides[0].medians.size(), c.sides[1].medians.size());
    const auto &before = c.sides[0].peak_extra_bytes, &after = c.sides[1].peak_extra_bytes;
    if (!before.empty() && !after.empty())
      line.memory_regression =
          *std::min_element(after.begin(), after.end()) > *std::max_element(before.begin(), before.end()) * (1 + memory_shift);
    auto result = GateResult::pass;
    if (!c.unusable.empty()) {
      result = GateResult::unusable;
      line.verdict = "unusable: " + c.unusable;
    } else if (c.is_new()) {
      line.is_new = true;
      line.verdict = "new: " + c.lacking;
    } else {
      line.verdict = verdict_name(line.judgement.verdict);
      if (line.judgement.verdict == Verdict::inconclusive) result = GateResult::inconclusive;
      if (line.judgement.verdict == Verdict::regression || line.memory_regression) result = GateResult::regression;
      if (line.memory_regression)
        line.verdict += line.judgement.verdict == Verdict::regression ? ", memory too" : ", regression in memory";
    }
    const auto waiver = waivers.find(c.name);
    if (waiver != waivers.end() && result != GateResult::pass) line.waived = waiver->second;
    else any[size_t(result)] = true;
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
