// Measures pair after pair until every case is decided, or counts instructions, and makes the report of the judgements.
#include "harness/gate/gate_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "harness/gate/quick_gate.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// Judges each case by one count for each side, because a build executes the same number of instructions every time.
std::vector<GateJudgement> judge_instructions(GateSuite& suite, double min_shift) {
  suite.count_instructions();
  std::vector<GateJudgement> judgements;
  for (const auto& c : suite.cases()) {
    auto& judgement = judgements.emplace_back();
    const auto &base = c.sides[0].medians, &candidate = c.sides[1].medians;
    if (base.empty() || candidate.empty()) continue;
    const double ratio = std::log(candidate[0] / base[0]);
    judgement = {.ratio = {ratio, {ratio, ratio}}, .slower_p = 0, .faster_p = 0, .margin_p = 0, .verdict = Verdict::pass};
    if (ratio > std::log1p(min_shift)) judgement.verdict = Verdict::regression;
    if (ratio < -std::log1p(min_shift)) judgement.verdict = Verdict::improvement;
  }
  return judgements;
}

// Measures time that has passed, in seconds.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Found {
  std::vector<GateJudgement> judgements;  // one for each case of the suite
  double full_gate_s = std::nan("");      // as in GateReport
  double pair_s = std::nan("");           // as in GateReport
};

Found judge_times(GateSuite& suite, const GatePlan& plan) {
  Gate gate(suite.cases().size(), plan);
  double seconds = 0;
  size_t pairs = 0;
  for (int done = 0;;) {
    // A case that is new or became unusable stays undecided and is not measured further.
    auto cases = gate.undecided();
    std::erase_if(cases, [&](size_t i) { return !suite.cases()[i].is_compared(); });
    if (cases.empty()) break;
    for (; done < gate.next_look(); ++done) {
      // After the first look only undecided cases are measured further.
      suite.note(fmt::format("pair {} of {}: {}{}", done + 1, gate.next_look(), count_of(cases.size(), "case"),
                             done >= plan.looks.front() ? " still undecided" : ""));
      const Stopwatch watch;
      suite.measure(cases);
      seconds += watch.seconds();
      pairs += suite.measures_all_at_once() ? 1 : cases.size();
    }
    std::vector<std::vector<double>> log_ratios;
    for (const auto& c : suite.cases()) log_ratios.push_back(c.sides[1].log_ratios);
    gate.look(log_ratios);
  }
  return {.judgements = gate.judgements(), .pair_s = pairs > 0 ? seconds / double(pairs) : std::nan("")};
}

// How long the pairs of a full gate would take if it went on to its last look at every case.
double full_gate_seconds(const std::vector<std::vector<double>>& seconds_of_pairs, const GatePlan& plan) {
  double sum = 0, count = 0;
  for (const auto& of_case : seconds_of_pairs)
    for (const auto seconds : of_case) {
      sum += seconds;
      ++count;
    }
  if (count == 0) return std::nan("");
  return sum / count * double(seconds_of_pairs.size()) * plan.looks.back();
}

// `watch` has run since the gate began.
Found judge_quickly(GateSuite& suite, const GateOptions& options, const Waivers& waivers, const Stopwatch& watch) {
  std::vector<size_t> compared;
  for (size_t i = 0; i < suite.cases().size(); ++i)
    if (suite.cases()[i].is_compared()) compared.push_back(i);
  QuickGate gate(compared.size(), options.plan, suite.options().seed);
  for (size_t k = 0; k < compared.size(); ++k)
    if (waivers.contains(suite.cases()[compared[k]].name)) gate.let_fail(k);
  std::vector<std::vector<double>> seconds_of_pairs(compared.size());
  double longest_s = 0;
  while (const auto k = gate.next()) {
    if (watch.seconds() + longest_s > options.time_limit_s) break;
    const auto& suite_case = suite.cases()[compared[*k]];
    suite.note(fmt::format("pair {} of {}", suite_case.sides[1].log_ratios.size() + 1, suite_case.name));
    const Stopwatch pair;
    suite.measure_one(compared[*k]);
    if (!suite_case.is_compared()) {
      gate.give_up(*k);
      continue;
    }
    gate.add(*k, suite_case.sides[1].log_ratios.back());
    seconds_of_pairs[*k].push_back(pair.seconds());
    longest_s = std::max(longest_s, seconds_of_pairs[*k].back());
  }
  Found found{std::vector<GateJudgement>(suite.cases().size()), full_gate_seconds(seconds_of_pairs, options.plan)};
  const auto judgements = gate.judgements();
  for (size_t k = 0; k < compared.size(); ++k) found.judgements[compared[k]] = judgements[k];
  return found;
}

}  // namespace

GateReport run_gate(GateSuite& suite, const GateOptions& options) {
  const Stopwatch watch;
  suite.check();
  std::vector<std::string> names;
  for (const auto& c : suite.cases()) names.push_back(c.name);
  const auto waivers = read_waivers(options.waivers, names);
  Found found{std::vector<GateJudgement>(suite.cases().size())};
  // Nothing is measured if a case is unusable and not waived: a build that computes wrong results has no time worth comparing.
  if (std::all_of(suite.cases().begin(), suite.cases().end(),
                  [&](const auto& c) { return c.unusable.empty() || waivers.contains(c.name); }))
    found = suite.options().instructions ? Found{judge_instructions(suite, options.instruction_shift)}
            : options.plan.is_quick      ? judge_quickly(suite, options, waivers, watch)
                                         : judge_times(suite, options.plan);
  auto report = report_of(suite.cases(), found.judgements, waivers, options);
  report.full_gate_s = found.full_gate_s;
  report.pair_s = found.pair_s;
  report.pair_is_of_all_cases = suite.measures_all_at_once();
  return report;
}

}  // namespace attnbench
