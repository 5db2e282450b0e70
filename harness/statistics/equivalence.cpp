// Derives a verdict from two intervals of a ratio, and says how far so few processes can support one.
#include "harness/statistics/equivalence.h"

#include <algorithm>
#include <cmath>

namespace attnbench {
namespace {

// Two one-sided tests at 5 % each.
constexpr double kEquivalenceConfidence = 0.90;

// Replaces the interval by what so many processes support.
RatioEstimate with_scope(LogRatio ratio, Interval equivalence, size_t processes, Interval range) {
  RatioEstimate estimate{ratio, scope_of(processes), equivalence, processes};
  if (estimate.scope == IntervalScope::range_of_processes) estimate.ratio.interval = range;
  return estimate;
}

}  // namespace

std::string scope_name(IntervalScope scope) {
  switch (scope) {
    case IntervalScope::none: return "";
    case IntervalScope::range_of_processes: return "range of processes";
    case IntervalScope::across_processes: return "across processes";
  }
  return "";
}

IntervalScope scope_of(size_t processes) {
  if (processes >= kMinValuesOfInterval) return IntervalScope::across_processes;
  return processes > 1 ? IntervalScope::range_of_processes : IntervalScope::none;
}

RatioEstimate estimate_ratio(const TwoSides& sides) {
  const auto [min_a, max_a] = std::minmax_element(sides.a.begin(), sides.a.end());
  const auto [min_b, max_b] = std::minmax_element(sides.b.begin(), sides.b.end());
  return with_scope(log_ratio(sides.a, sides.b), log_ratio(sides.a, sides.b, kEquivalenceConfidence).interval,
                    std::min(sides.a.size(), sides.b.size()), {std::log(*min_b / *max_a), std::log(*max_b / *min_a)});
}

RatioEstimate estimate_paired_ratio(std::span<const double> log_ratios) {
  const auto [low, high] = std::minmax_element(log_ratios.begin(), log_ratios.end());
  return with_scope(paired_log_ratio(log_ratios), paired_log_ratio(log_ratios, kEquivalenceConfidence).interval,
                    log_ratios.size(), {*low, *high});
}

ValuesOfEstimate values_of_estimate(double median_a, double median_b, double log_ratio) {
  const double middle = std::sqrt(median_a) * std::sqrt(median_b);
  return {middle * std::exp(-log_ratio / 2), middle * std::exp(log_ratio / 2)};
}

DecisiveInterval decisive_interval(const RatioEstimate& estimate, Finding finding) {
  if (finding == Finding::equivalent) return {estimate.equivalence, int(100 * kEquivalenceConfidence)};
  return {estimate.ratio.interval, estimate.scope == IntervalScope::across_processes ? 95 : 0};
}

Finding finding_of(const RatioEstimate& estimate, bool is_significant, double within) {
  const double bound = std::log1p(within);
  if (estimate.scope == IntervalScope::none) return Finding::cannot_tell;
  if (is_significant && estimate.ratio.estimate > bound) return Finding::slower;
  if (is_significant && estimate.ratio.estimate < -bound) return Finding::faster;
  if (estimate.equivalence.low > -bound && estimate.equivalence.high < bound) return Finding::equivalent;
  return Finding::cannot_tell;
}

bool excludes_equality(const RatioEstimate& estimate) {
  return estimate.scope == IntervalScope::across_processes &&
         (estimate.ratio.interval.low > 0 || estimate.ratio.interval.high < 0);
}

std::vector<CaseComparison> compare_sides(const std::vector<TwoSides>& cases, const EquivalenceCriteria& criteria,
                                          const std::function<void()>& before_each) {
  const auto judgements = judge(cases, {.alpha = criteria.alpha, .min_shift = criteria.within}, before_each);
  std::vector<CaseComparison> all;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (before_each) before_each();
    auto& c = all.emplace_back();
    c.estimate = estimate_ratio(cases[i]);
    c.adjusted_p = judgements[i].adjusted_p;
    c.finding = finding_of(c.estimate, c.adjusted_p < criteria.alpha, criteria.within);
    c.can_differ = c.estimate.processes > 1 && can_decide(cases[i].a.size(), cases[i].b.size(), cases.size(), criteria.alpha);
  }
  return all;
}

Finding overall_finding(const std::vector<Finding>& findings) {
  for (const auto finding : {Finding::slower, Finding::cannot_tell, Finding::faster, Finding::equivalent})
    if (std::find(findings.begin(), findings.end(), finding) != findings.end()) return finding;
  return Finding::cannot_tell;
}

}  // namespace attnbench
