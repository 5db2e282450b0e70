// Computes the tests of comparisons, and how many processes or pairs these need to decide.
#include "harness/statistics/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnbench {

std::string verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::regression: return "regression";
    case Verdict::improvement: return "improvement";
    case Verdict::pass: return "pass";
    case Verdict::inconclusive: return "inconclusive";
  }
  return "";
}

namespace {

// The judgement of a case without observations.
Judgement unjudged() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Judgement judged;
  judged.ratio = {std::nan(""), {-infinity, infinity}};
  return judged;
}

// Adjusts the p values over all cases and sets the verdicts.
void set_verdicts(std::vector<Judgement>& judgements, const Criteria& criteria) {
  std::vector<double> p;
  for (const auto& judged : judgements) p.push_back(judged.p);
  const auto adjusted = holm(p);
  const double shift = std::log1p(criteria.min_shift);
  for (size_t i = 0; i < judgements.size(); ++i) {
    auto& judged = judgements[i];
    judged.adjusted_p = adjusted[i];
    if (judged.adjusted_p < criteria.alpha && judged.ratio.estimate > shift) judged.verdict = Verdict::regression;
    else if (judged.adjusted_p < criteria.alpha && judged.ratio.estimate < -shift) judged.verdict = Verdict::improvement;
    else if (judged.ratio.interval.high < std::log1p(criteria.margin)) judged.verdict = Verdict::pass;
  }
}

}  // namespace

std::vector<Judgement> judge(const std::vector<TwoSides>& cases, const Criteria& criteria,
                             const std::function<void()>& before_each) {
  std::vector<Judgement> judgements(cases.size(), unjudged());
  for (size_t i = 0; i < cases.size(); ++i) {
    if (before_each) before_each();
    const auto& [a, b] = cases[i];
    if (a.empty() || b.empty()) continue;
    judgements[i].ratio = log_ratio(a, b);
    judgements[i].p = mann_whitney_p(a, b);
  }
  set_verdicts(judgements, criteria);
  return judgements;
}

PairTests test_pairs(std::span<const double> log_ratios, const Criteria& criteria) {
  if (log_ratios.empty()) return {.ratio = unjudged().ratio};
  const double shift = std::log1p(criteria.min_shift), margin = std::log1p(criteria.margin);
  const auto p = [&](double sign, double bound) {
    std::vector<double> differences;
    for (const auto log_ratio : log_ratios) differences.push_back(sign * log_ratio - bound);
    return signed_rank_greater_p(differences);
  };
  return {.ratio = paired_log_ratio(log_ratios), .slower_p = p(1, shift), .faster_p = p(-1, shift), .margin_p = p(-1, -margin)};
}

int pairs_to_reject(size_t hypotheses, double level) {
  int pairs = 1;
  while (std::ldexp(double(hypotheses), -pairs) >= level) ++pairs;
  return pairs;
}

bool can_decide(size_t processes_a, size_t processes_b, size_t cases, double alpha) {
  const auto n = double(processes_a), m = double(processes_b);
  const double log_arrangements = std::lgamma(n + m + 1) - std::lgamma(n + 1) - std::lgamma(m + 1);
  return std::log(2.0 * double(cases)) - log_arrangements < std::log(alpha);
}

size_t processes_to_decide(size_t cases, double alpha) {
  size_t processes = 1;
  while (!can_decide(processes, processes, cases, alpha)) ++processes;
  return processes;
}

}  // namespace attnbench
