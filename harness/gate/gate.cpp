#include "harness/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "harness/process/interrupts.h"
#include "harness/text/errors.h"

namespace attnbench {

Gate::Gate(size_t cases, GatePlan plan) : plan_(std::move(plan)), decided_on_(cases), judgements_(cases) {
  // With 8 pairs the 95 % interval leaves out the three lowest and the three highest means of two pairs; with fewer pairs it
  // leaves out fewer.
  constexpr int kMinPairs = 8;
  if (plan_.looks.empty() || plan_.looks.front() < kMinPairs || !std::is_sorted(plan_.looks.begin(), plan_.looks.end()) ||
      std::adjacent_find(plan_.looks.begin(), plan_.looks.end()) != plan_.looks.end())
    throw UsageError(fmt::format("--looks expects ascending numbers of pairs, each at least {}, such as 8,12,20", kMinPairs));
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
  for (const auto i : undecided()) decided_on_[i] = log_ratios.at(i);
  const auto looks = plan_.looks.size();
  auto criteria = plan_.criteria;
  // The first of several looks finds no regression or improvement (alpha = 0); the others share alpha equally.
  if (looks > 1) criteria.alpha = looks_taken_ == 0 ? 0 : criteria.alpha / double(looks - 1);
  ++looks_taken_;
  const auto now = judge_pairs(decided_on_, criteria);
  const auto shifted = [&](const Judgement& judged) {
    const auto& [low, high] = judged.ratio.interval;
    return low > std::log1p(criteria.min_shift) || high < -std::log1p(criteria.min_shift);
  };
  for (size_t i = 0; i < now.size(); ++i) {
    if (judgements_[i].verdict != Verdict::inconclusive) continue;
    judgements_[i] = now[i];
    if (now[i].verdict == Verdict::pass && shifted(now[i]) && next_look() != 0) judgements_[i].verdict = Verdict::inconclusive;
  }
}

void check_recordings(size_t recordings, const GatePlan& plan) {
  if (recordings < size_t(plan.looks.back()))
    throw UsageError(fmt::format("a case has {} recordings, expected at least {}, the number of pairs at the last look",
                                 recordings, plan.looks.back()));
}

ErrorRates resample_gate(const std::vector<std::vector<double>>& log_ratios, const GatePlan& plan, int trials, uint64_t seed) {
  const auto max_pairs = size_t(plan.looks.back());
  for (const auto& recorded : log_ratios) check_recordings(recorded.size(), plan);
  const auto cases = log_ratios.size();
  std::mt19937_64 random(seed);
  ErrorRates rates;
  rates.trials = trials;
  rates.regression.resize(cases);
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
  std::for_each(rates.inconclusive.begin(), rates.inconclusive.end(), share);
  rates.mean_pairs = pairs / double(trials) / double(std::max<size_t>(1, cases));
  return rates;
}

}  // namespace attnbench
