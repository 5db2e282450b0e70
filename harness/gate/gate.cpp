// Decides each case at the looks of the plan, with p values that are adjusted over the cases.
#include "harness/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {

namespace {

// The index of the first of the looks that share alpha: as many of the last looks as can each reject one case with their share.
size_t first_rejecting_look(size_t cases, const GatePlan& plan) {
  const auto looks = plan.looks.size();
  size_t first = 0;
  while (first + 1 < looks && plan.looks[first] < pairs_to_reject(cases, plan.criteria.alpha / double(looks - first))) ++first;
  return first;
}

void check_plan(size_t cases, const GatePlan& plan) {
  check_levels(plan);
  const auto& looks = plan.looks;
  if (looks.empty() || !std::is_sorted(looks.begin(), looks.end()) ||
      std::adjacent_find(looks.begin(), looks.end()) != looks.end())
    throw UsageError("--looks expects ascending numbers of pairs, such as 8,12,20");
  const int first = pairs_to_reject(looks.size(), plan.pass_alpha), last = pairs_to_reject(cases, plan.criteria.alpha);
  if (looks.front() < first)
    throw UsageError(
        fmt::format("--looks: no case can pass after {}, because the smallest p value of n pairs is 2^-n; "
                    "expected at least {} at the first of {} with --pass-alpha {}",
                    count_of(looks.front(), "pair"), count_of(first, "pair"), count_of(looks.size(), "look"), plan.pass_alpha));
  if (looks.back() < last)
    throw UsageError(
        fmt::format("--looks: after {} none of {} can be found slower, because the smallest p value of n "
                    "pairs is 2^-n; expected at least {} at the last look with --alpha {}",
                    count_of(looks.back(), "pair"), count_of(cases, "case"), count_of(last, "pair"), plan.criteria.alpha));
}

}  // namespace

void check_levels(const GatePlan& plan) {
  if (!(plan.criteria.alpha > 0)) throw UsageError("--alpha is 0, expected a probability above 0");
  if (!(plan.pass_alpha > 0)) throw UsageError("--pass-alpha is 0, expected a probability above 0");
}

Gate::Gate(size_t cases, GatePlan plan) : plan_(std::move(plan)), judgements_(cases) {
  check_plan(cases, plan_);
  first_rejecting_ = first_rejecting_look(cases, plan_);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (auto& judgement : judgements_) judgement.ratio = {std::nan(""), {-infinity, infinity}};
}

int Gate::next_look() const { return looks_taken_ < plan_.looks.size() ? plan_.looks[looks_taken_] : 0; }

std::vector<size_t> Gate::undecided() const {
  std::vector<size_t> cases;
  if (next_look() == 0) return cases;
  for (size_t i = 0; i < judgements_.size(); ++i)
    if (judgements_[i].verdict == Verdict::inconclusive) cases.push_back(i);
  return cases;
}

void Gate::look(const std::vector<std::vector<double>>& log_ratios) {
  auto judged = undecided();
  std::erase_if(judged, [&](size_t i) { return log_ratios.at(i).size() < size_t(next_look()); });
  // A hypothesis that was rejected at an earlier look has p = 0, and one that this look does not test has p = 1.
  std::vector<double> slower, faster;
  for (const auto& judgement : judgements_) {
    slower.push_back(judgement.verdict == Verdict::regression ? 0 : 1);
    faster.push_back(judgement.verdict == Verdict::improvement ? 0 : 1);
  }
  std::vector<PairTests> tests(judgements_.size());
  for (const auto i : judged) {
    tests[i] = test_pairs(log_ratios[i], plan_.criteria);
    slower[i] = tests[i].slower_p;
    faster[i] = tests[i].faster_p;
  }
  const auto adjusted_slower = holm(slower), adjusted_faster = holm(faster);
  ++looks_taken_;
  for (const auto i : judged) judgements_[i] = judgement_of(tests[i], adjusted_slower[i], adjusted_faster[i]);
}

// The judgement at the look that was just begun, from p values that are adjusted over the cases.
GateJudgement Gate::judgement_of(const PairTests& tests, double slower_p, double faster_p) const {
  const auto looks = plan_.looks.size();
  const bool can_reject = looks_taken_ > first_rejecting_, is_last = next_look() == 0;
  const auto over_looks = [](double p, size_t count) { return std::min(1.0, p * double(count)); };
  GateJudgement judged{.ratio = tests.ratio, .margin_p = over_looks(tests.margin_p, looks)};
  if (can_reject) {
    judged.slower_p = over_looks(slower_p, looks - first_rejecting_);
    judged.faster_p = over_looks(faster_p, looks - first_rejecting_);
  }
  const bool is_shifted = std::abs(tests.ratio.estimate) > std::log1p(plan_.criteria.min_shift);
  if (judged.slower_p < plan_.criteria.alpha) judged.verdict = Verdict::regression;
  else if (judged.margin_p >= plan_.pass_alpha) judged.verdict = Verdict::inconclusive;
  else if (judged.faster_p < plan_.criteria.alpha) judged.verdict = Verdict::improvement;
  else if (is_last || !is_shifted) judged.verdict = Verdict::pass;
  return judged;
}

}  // namespace attnbench
