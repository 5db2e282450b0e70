#include "harness/driver/comparison.h"

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

std::vector<Judgement> judge(const std::vector<TwoSides>& cases, const Criteria& criteria) {
  std::vector<Judgement> judgements(cases.size());
  std::vector<double> p(cases.size(), 1);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [a, b] = cases[i];
    auto& judged = judgements[i];
    constexpr double infinity = std::numeric_limits<double>::infinity();
    judged.ratio = {std::nan(""), {-infinity, infinity}};
    if (a.empty() || b.empty()) continue;
    judged.ratio = log_ratio(a, b);
    judged.p = p[i] = mann_whitney_p(a, b);
  }
  const auto adjusted = holm(p);
  for (size_t i = 0; i < cases.size(); ++i) {
    auto& judged = judgements[i];
    judged.adjusted_p = adjusted[i];
    const double shift = std::log1p(criteria.min_shift);
    if (judged.adjusted_p < criteria.alpha && judged.ratio.estimate > shift) judged.verdict = Verdict::regression;
    else if (judged.adjusted_p < criteria.alpha && judged.ratio.estimate < -shift) judged.verdict = Verdict::improvement;
    else if (judged.ratio.interval.high < std::log1p(criteria.margin)) judged.verdict = Verdict::pass;
  }
  return judgements;
}

Verdict over_all(const std::vector<Judgement>& judgements) {
  const auto any = [&](Verdict verdict) {
    return std::any_of(judgements.begin(), judgements.end(), [&](const Judgement& j) { return j.verdict == verdict; });
  };
  for (const auto verdict : {Verdict::regression, Verdict::inconclusive})
    if (any(verdict)) return verdict;
  return any(Verdict::improvement) ? Verdict::improvement : Verdict::pass;
}

}  // namespace attnbench
