#include "harness/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "harness/process/interrupts.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {

namespace {

// The first of the looks that share alpha: as many of the last looks as can each reject one case with their share.
size_t first_rejecting_look(size_t cases, const GatePlan& plan) {
  const auto looks = plan.looks.size();
  size_t first = 0;
  while (first + 1 < looks && plan.looks[first] < pairs_to_reject(cases, plan.criteria.alpha / double(looks - first))) ++first;
  return first;
}

void check_plan(size_t cases, const GatePlan& plan) {
  const auto& looks = plan.looks;
  if (!(plan.criteria.alpha > 0)) throw UsageError("--alpha is 0, expected a probability above 0");
  if (!(plan.pass_alpha > 0)) throw UsageError("--pass-alpha is 0, expected a probability above 0");
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

void check_recordings(size_t recordings, const GatePlan& plan) {
  if (recordings < size_t(plan.looks.back()))
    throw UsageError(fmt::format("a case has {}, expected at least {}, the number of pairs at the last look",
                                 count_of(recordings, "recording"), plan.looks.back()));
}

ErrorRates resample_gate(const std::vector<std::vector<double>>& log_ratios, const GatePlan& plan, int trials, uint64_t seed) {
  const auto max_pairs = size_t(plan.looks.back());
  for (const auto& recorded : log_ratios) check_recordings(recorded.size(), plan);
  const auto cases = log_ratios.size();
  std::mt19937_64 random(seed);
  ErrorRates rates;
  rates.trials = trials;
  rates.regression.resize(cases);
  rates.pass.resize(cases);
  rates.inconclusive.resize(cases);
  double pairs = 0;
  for (int trial = 0; trial < trials; ++trial) {
    throw_if_interrupted();
    std::vector<std::vector<double>> drawn(cases);
    for (size_t i = 0; i < cases; ++i) {
      auto from = log_ratios[i];
      for (size_t j = 0; j < max_pairs; ++j)
        std::swap(from[j], from[j + std::uniform_int_distribution<size_t>(0, from.size() - 1 - j)(random)]);
      drawn[i].assign(from.begin(), from.begin() + std::ptrdiff_t(max_pairs));
    }
    Gate gate(cases, plan);
    int before = 0;
    while (!gate.has_ended()) {
      const int count = gate.next_look();
      pairs += double(gate.undecided().size()) * (count - before);
      before = count;
      auto seen = drawn;
      for (auto& all : seen) all.resize(size_t(count));
      gate.look(seen);
    }
    bool any_regression = false, any_inconclusive = false;
    for (size_t i = 0; i < cases; ++i) {
      const auto verdict = gate.judgements()[i].verdict;
      rates.regression[i] += verdict == Verdict::regression ? 1 : 0;
      rates.inconclusive[i] += verdict == Verdict::inconclusive ? 1 : 0;
      rates.pass[i] += verdict == Verdict::pass || verdict == Verdict::improvement ? 1 : 0;
      any_regression = any_regression || verdict == Verdict::regression;
      any_inconclusive = any_inconclusive || verdict == Verdict::inconclusive;
    }
    rates.any_regression += any_regression ? 1 : 0;
    rates.any_inconclusive += any_inconclusive ? 1 : 0;
  }
  const auto share = [&](double& count) { count /= double(trials); };
  share(rates.any_regression);
  share(rates.any_inconclusive);
  std::for_each(rates.regression.begin(), rates.regression.end(), share);
  std::for_each(rates.pass.begin(), rates.pass.end(), share);
  std::for_each(rates.inconclusive.begin(), rates.inconclusive.end(), share);
  rates.mean_pairs = pairs / double(trials) / double(std::max<size_t>(1, cases));
  return rates;
}

std::vector<double> slowed_log_ratios(const std::vector<double>& equal_log_ratios, double slowdown) {
  std::vector<double> slowed;
  for (const auto log_ratio : equal_log_ratios)
    for (const double sign : {1, -1}) slowed.push_back(sign * log_ratio + std::log1p(slowdown));
  return slowed;
}

PowerCurve power_curve(const std::vector<double>& equal_log_ratios, size_t cases, const GatePlan& plan, int trials,
                       uint64_t seed) {
  // Holm's procedure compares the only case that is slower with this share of the level.
  auto plan_of_case = plan;
  plan_of_case.criteria.alpha /= double(cases);
  PowerCurve curve;
  for (int percent = 1; percent <= 15; ++percent) {
    const auto rates = resample_gate({slowed_log_ratios(equal_log_ratios, percent / 100.0)}, plan_of_case, trials, seed);
    curve.slowdown_percent.push_back(percent);
    curve.regression.push_back(rates.regression[0]);
    curve.pass.push_back(rates.pass[0]);
    curve.inconclusive.push_back(rates.inconclusive[0]);
  }
  return curve;
}

}  // namespace attnbench
