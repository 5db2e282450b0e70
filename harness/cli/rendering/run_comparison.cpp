// Tests the benchmarks that both sides have, and says with every verdict that the sides were not measured in turns.
#include "harness/cli/rendering/run_comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/cli/rendering/answers.h"
#include "harness/cli/rendering/comparison_report.h"
#include "harness/process/interrupts.h"
#include "harness/text/errors.h"
#include "harness/text/json_numbers.h"
#include "harness/text/safe_text.h"
#include "harness/text/text_table.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr auto kNotInTurns = "not measured in turns";

std::string percent_text(double log_ratio) {
  return std::isfinite(log_ratio) ? fmt::format("{:+.1f} %", 100 * std::expm1(log_ratio)) : "–";
}

// The change of the value, which of a rate has the opposite sign of that of its cost.
double sign_of(const RunComparison& comparison) { return comparison.a.measure.more_is_better ? -1 : 1; }

std::string caution_of(const RunComparison& comparison) {
  auto text = fmt::format(
      "The runs of a and b were {}: they lie apart in time, and whatever changed in between, such as the machine or its load, "
      "counts "
      "as a difference. p is that of the Mann–Whitney test over {} and {} runs, adjusted by Holm's procedure; how often it is "
      "wrong "
      "about equal programs is not known. `attnbench gate --command` runs both in turns and controls that.",
      kNotInTurns, comparison.a.runs, comparison.b.runs);
  if (comparison.a.machines != comparison.b.machines)
    text += fmt::format(" The machines differ: {} and {}.", fmt::join(comparison.a.machines, "; "),
                        fmt::join(comparison.b.machines, "; "));
  return text;
}

}  // namespace

std::vector<Finding> RunComparison::findings() const {
  std::vector<Finding> found;
  for (const auto& benchmark : benchmarks) found.push_back(benchmark.comparison.finding);
  return found;
}

RunComparison compare_runs(RunSet a, RunSet b, const EquivalenceCriteria& criteria) {
  if (a.format != b.format)
    throw UsageError(
        fmt::format("{} is {} and {} is {}; expected one format", a.path, format_name(a.format), b.path, format_name(b.format)));
  RunComparison comparison{criteria, std::move(a), std::move(b), {}, {}};
  std::map<std::string, const RunSet::Benchmark*> of_b;
  for (const auto& benchmark : comparison.b.benchmarks) of_b[benchmark.name] = &benchmark;
  std::vector<TwoSides> costs;
  std::string first_fault;  // of a benchmark that both sides have
  const auto& measure = comparison.a.measure;
  for (const auto& before : comparison.a.benchmarks) {
    const auto found = of_b.find(before.name);
    const auto name = safe_text(before.name);
    if (found == of_b.end()) {
      comparison.not_compared.push_back(fmt::format("{}: only in a", name));
      continue;
    }
    const auto& after = *found->second;
    of_b.erase(found);
    if (!before.fault.empty() || !after.fault.empty()) {
      comparison.not_compared.push_back(fmt::format("{}: no value in {}: {}", name, before.fault.empty() ? "b" : "a",
                                                    before.fault.empty() ? after.fault : before.fault));
      if (first_fault.empty()) first_fault = comparison.not_compared.back();
      continue;
    }
    comparison.benchmarks.push_back({before.name, {before.values, after.values}, {}});
    auto& sides = costs.emplace_back(comparison.benchmarks.back().values);
    for (auto* side : {&sides.a, &sides.b})
      for (auto& value : *side) value = cost_of(measure, value);
  }
  for (const auto& [name, benchmark] : of_b) comparison.not_compared.push_back(fmt::format("{}: only in b", safe_text(name)));
  if (costs.empty() && !first_fault.empty())
    throw UsageError(fmt::format("{} and {} have no benchmark with values on both sides; {}", comparison.a.path,
                                 comparison.b.path, first_fault));
  if (costs.empty())
    throw UsageError(fmt::format("{} and {} have no benchmark in common that has the measure {}", comparison.a.path,
                                 comparison.b.path, measure.name));
  const auto can = [&](const TwoSides& sides) {
    return can_decide(sides.a.size(), sides.b.size(), costs.size(), criteria.alpha);
  };
  if (std::none_of(costs.begin(), costs.end(), can)) {
    const auto needed = processes_to_decide(costs.size(), criteria.alpha);
    throw UsageError(fmt::format(
        "{} has {} and {} has {}, which cannot find any of {} different at the level {:g}; at least {} a side are needed, each "
        "in a "
        "file of its own in a folder. Repetitions within a run count as one value. Only `attnbench gate --command` can run again",
        comparison.a.path, count_of(comparison.a.runs, "run"), comparison.b.path, count_of(comparison.b.runs, "run"),
        count_of(costs.size(), "benchmark"), criteria.alpha, needed));
  }
  const auto found = compare_sides(costs, criteria, throw_if_interrupted);
  for (size_t i = 0; i < found.size(); ++i) comparison.benchmarks[i].comparison = found[i];
  return comparison;
}

Json json_of(const RunComparison& comparison) {
  Json json = {{"verdict", verdict_name(overall_finding(comparison.findings()))},
               {"measured_in_turns", false},
               {"measure", comparison.a.measure.name},
               {"unit", comparison.a.measure.unit},
               {"more_is_better", comparison.a.measure.more_is_better},
               {"alpha", comparison.criteria.alpha},
               {"within_percent", 100 * comparison.criteria.within},
               {"runs", {{"a", comparison.a.runs}, {"b", comparison.b.runs}}},
               {"machines", {{"a", comparison.a.machines}, {"b", comparison.b.machines}}},
               {"cases", Json::array()},
               {"not_compared", comparison.not_compared}};
  for (const auto& [name, values, found] : comparison.benchmarks)
    json["cases"].push_back({{"name", name},
                             {"a", values.a},
                             {"b", values.b},
                             {"log_ratio", finite_or_null(found.estimate.ratio.estimate)},
                             {"interval", json_of(found.estimate.ratio.interval)},
                             {"adjusted_p", found.adjusted_p},
                             {"verdict", verdict_name(found.finding)}});
  return json;
}

void print_report(const RunComparison& comparison, Format format) {
  const auto findings = comparison.findings();
  if (format != Format::csv)
    print_answers({fmt::format("Over all: {}, {}.", verdict_name(overall_finding(findings)), kNotInTurns)});
  TextTable table(
      {"benchmark", right("a"), right("b"), right("change for the worse"), right("95 % interval"), right("p"), "verdict on b"},
      {.answers = {"benchmark", "change for the worse", "95 % interval", "verdict on b"}, .left_out_first = {"p", "a", "b"}});
  for (const auto& [name, values, found] : comparison.benchmarks) {
    const auto& [estimate, interval] = found.estimate.ratio;
    const auto shown = values_of_estimate(median(values.a), median(values.b), sign_of(comparison) * estimate);
    table.add_row({name, value_text(comparison.a.measure, shown.a), value_text(comparison.a.measure, shown.b),
                   percent_text(estimate), percent_text(interval.low) + " … " + percent_text(interval.high),
                   number_text(found.adjusted_p, "{:.2g}"), fmt::format("{}, {}", verdict_name(found.finding), kNotInTurns)},
                  tone_of(found.finding));
  }
  print_table(table, format);
  if (format == Format::csv) return;
  fmt::print("\n");
  for (const auto& sentence : comparison.not_compared) print_paragraph("Not compared: " + sentence);
  print_paragraph(caution_of(comparison));
}

}  // namespace attnbench
