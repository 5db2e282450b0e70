#include "harness/gate/gate_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/text/units.h"

namespace attnbench {
namespace {

// Judges each case by one count per side, because a build executes the same number of instructions every time.
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

std::vector<GateJudgement> judge_times(GateSuite& suite, const GatePlan& plan) {
  Gate gate(suite.cases().size(), plan);
  for (int done = 0;;) {
    // A case that is new or became unusable stays undecided and is not measured further.
    auto cases = gate.undecided();
    std::erase_if(cases, [&](size_t i) { return !suite.cases()[i].is_compared(); });
    if (cases.empty()) break;
    for (; done < gate.next_look(); ++done) {
      // At each look there may be cases that are still undecided, for which the number of pairs then grows.
      suite.note(fmt::format("pair {} of {}: {}{}", done + 1, gate.next_look(), count_of(cases.size(), "case"),
                             done >= plan.looks.front() ? " still undecided" : ""));
      suite.measure(cases);
    }
    std::vector<std::vector<double>> log_ratios;
    for (const auto& c : suite.cases()) log_ratios.push_back(c.sides[1].log_ratios);
    gate.look(log_ratios);
  }
  return gate.judgements();
}

}  // namespace

GateReport run_gate(GateSuite& suite, const GateOptions& options) {
  suite.check();
  std::vector<std::string> names;
  for (const auto& c : suite.cases()) names.push_back(c.name);
  const auto waivers = read_waivers(options.waivers, names);
  std::vector<GateJudgement> judgements(suite.cases().size());
  // Nothing is measured if a case is unusable and not waived: a build that computes wrong results has no time worth comparing.
  if (std::all_of(suite.cases().begin(), suite.cases().end(),
                  [&](const auto& c) { return c.unusable.empty() || waivers.contains(c.name); }))
    judgements =
        suite.options().instructions ? judge_instructions(suite, options.instruction_shift) : judge_times(suite, options.plan);
  return report_of(suite.cases(), judgements, waivers, options.memory_shift);
}

}  // namespace attnbench
