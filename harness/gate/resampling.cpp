// Draws pairs from the recorded ones without replacement, and lets full and quick gates decide from them.
#include "harness/gate/resampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "harness/gate/quick_gate.h"
#include "harness/process/interrupts.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

using Pairs = std::vector<std::vector<double>>;  // the log ratios of each case

// The recorded pairs of a case, and what is made of one that is drawn: with Signs::either it gets a random sign, and then the
// logarithm of the slowdown is added to it, which is exact for a slowdown that multiplies the time.
struct Source {
  const std::vector<double>* log_ratios;
  Signs signs = Signs::recorded;
  double slowdown = 0;
};
using Sources = std::vector<Source>;

Sources sources_of(const Pairs& log_ratios, Signs signs) {
  Sources sources;
  for (const auto& of_case : log_ratios) sources.push_back({&of_case, signs});
  return sources;
}

// The number of pairs at the last look at one of so many cases.
size_t max_pairs(size_t cases, const GatePlan& plan) { return size_t(looks_of(cases, plan).back()); }

// Draws `count` of the pairs without replacement. Each sign is drawn by itself: if a pool of all pairs with both signs were drawn
// from without replacement, both signs of one pair could be in a trial and cancel, so that the mean of a trial would vary too
// little.
std::vector<double> draw(const Source& source, size_t count, std::mt19937_64& random) {
  auto pairs = *source.log_ratios;
  const double shift = std::log1p(source.slowdown);
  for (size_t j = 0; j < count; ++j) {
    std::swap(pairs[j], pairs[j + std::uniform_int_distribution<size_t>(0, pairs.size() - 1 - j)(random)]);
    if (source.signs == Signs::either && std::bernoulli_distribution()(random)) pairs[j] = -pairs[j];
    pairs[j] += shift;
  }
  pairs.resize(count);
  return pairs;
}

struct Trial {
  std::vector<Verdict> verdicts;
  double pairs = 0;  // of all cases together

  bool any(Verdict verdict) const { return std::find(verdicts.begin(), verdicts.end(), verdict) != verdicts.end(); }
};

Trial end_of(const std::vector<GateJudgement>& judgements, double pairs) {
  Trial trial{{}, pairs};
  for (const auto& judgement : judgements) trial.verdicts.push_back(judgement.verdict);
  return trial;
}

Trial run_full_gate(const Pairs& drawn, const GatePlan& plan) {
  Gate gate(drawn.size(), plan);
  double pairs = 0;
  int before = 0;
  while (!gate.has_ended()) {
    const int count = gate.next_look();
    pairs += double(gate.undecided().size()) * (count - before);
    before = count;
    auto seen = drawn;
    for (auto& all : seen) all.resize(size_t(count));
    gate.look(seen);
  }
  return end_of(gate.judgements(), pairs);
}

Trial run_quick_gate(const Pairs& drawn, const GatePlan& plan, uint64_t seed) {
  QuickGate gate(drawn.size(), plan, seed);
  std::vector<size_t> taken(drawn.size(), 0);
  double pairs = 0;
  while (const auto index = gate.next()) {
    gate.add(*index, drawn[*index].at(taken[*index]++));
    ++pairs;
  }
  return end_of(gate.judgements(), pairs);
}

// Draws the pairs of each case, and runs the gate on them.
Trial run_trial(const Sources& recorded, const GatePlan& plan, std::mt19937_64& random) {
  throw_if_interrupted();
  Pairs drawn;
  for (const auto& of_case : recorded) drawn.push_back(draw(of_case, max_pairs(recorded.size(), plan), random));
  return plan.is_quick ? run_quick_gate(drawn, plan, random()) : run_full_gate(drawn, plan);
}

ErrorRates rates_of(const Sources& sources, const GatePlan& plan, int trials, uint64_t seed) {
  const auto cases = sources.size();
  for (const auto& source : sources) check_recordings(source.log_ratios->size(), cases, plan);
  std::mt19937_64 random(seed);
  ErrorRates rates;
  rates.trials = trials;
  rates.regression.resize(cases);
  rates.pass.resize(cases);
  rates.inconclusive.resize(cases);
  double pairs = 0;
  for (int i = 0; i < trials; ++i) {
    const auto trial = run_trial(sources, plan, random);
    pairs += trial.pairs;
    for (size_t k = 0; k < cases; ++k) {
      const auto verdict = trial.verdicts[k];
      rates.regression[k] += verdict == Verdict::regression ? 1 : 0;
      rates.inconclusive[k] += verdict == Verdict::inconclusive ? 1 : 0;
      rates.pass[k] += verdict == Verdict::pass || verdict == Verdict::improvement ? 1 : 0;
    }
    rates.any_regression += trial.any(Verdict::regression) ? 1 : 0;
    rates.any_inconclusive += trial.any(Verdict::inconclusive) ? 1 : 0;
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

}  // namespace

Interval share_interval(double share, int trials) {
  const auto seen = int(std::lround(share * trials));
  // The probability of at most `count` successes, if each has the probability p.
  const auto at_most = [&](int count, double p) {
    double sum = 0;
    for (int k = 0; k <= count; ++k)
      sum += std::exp(std::lgamma(trials + 1.0) - std::lgamma(k + 1.0) - std::lgamma(trials - k + 1.0) + k * std::log(p) +
                      (trials - k) * std::log1p(-p));
    return sum;
  };
  // The p at which a falling function crosses the level.
  const auto where = [](double level, const auto& falling) {
    double low = 0, high = 1;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (falling(middle) > level ? low : high) = middle;
    }
    return (low + high) / 2;
  };
  constexpr double kTail = 0.025;
  Interval interval{0, 1};
  if (seen > 0) interval.low = where(1 - kTail, [&](double p) { return at_most(seen - 1, p); });
  if (seen < trials) interval.high = where(kTail, [&](double p) { return at_most(seen, p); });
  return interval;
}

void check_recordings(size_t recordings, size_t cases, const GatePlan& plan) {
  if (const auto expected = max_pairs(cases, plan); recordings < expected)
    throw UsageError(fmt::format("a case has {} recordings, expected at least {}, the number of pairs at the last look",
                                 recordings, expected));
}

ErrorRates resample_gate(const std::vector<std::vector<double>>& log_ratios, const GatePlan& plan, int trials, uint64_t seed,
                         Signs signs) {
  return rates_of(sources_of(log_ratios, signs), plan, trials, seed);
}

PowerCurve power_curve(const std::vector<double>& equal_log_ratios, size_t cases, const GatePlan& plan, int trials,
                       uint64_t seed) {
  // Holm's procedure compares the only case that is slower with this share of the level.
  auto plan_of_case = plan;
  plan_of_case.criteria.alpha /= double(cases);
  PowerCurve curve;
  for (int percent = 1; percent <= 15; ++percent) {
    const auto rates = rates_of({{&equal_log_ratios, Signs::either, percent / 100.0}}, plan_of_case, trials, seed);
    curve.slowdown_percent.push_back(percent);
    curve.regression.push_back(rates.regression[0]);
    curve.pass.push_back(rates.pass[0]);
    curve.inconclusive.push_back(rates.inconclusive[0]);
  }
  return curve;
}

SuiteCurve suite_curve(const std::vector<std::vector<double>>& equal_log_ratios, const GatePlan& plan,
                       const std::vector<double>& slowdown_percent, int trials, uint64_t seed) {
  const auto cases = equal_log_ratios.size();
  for (const auto& recorded : equal_log_ratios) check_recordings(recorded.size(), cases, plan);
  SuiteCurve curve;
  for (const auto percent : slowdown_percent) {
    std::mt19937_64 random(seed);
    double regression = 0, inconclusive = 0, pairs = 0;
    for (int i = 0; i < trials; ++i) {
      auto sources = sources_of(equal_log_ratios, Signs::either);
      sources[size_t(i) % cases].slowdown = percent / 100;
      const auto trial = run_trial(sources, plan, random);
      pairs += trial.pairs;
      if (trial.any(Verdict::regression)) ++regression;
      else if (trial.any(Verdict::inconclusive)) ++inconclusive;
    }
    curve.slowdown_percent.push_back(percent);
    curve.regression.push_back(regression / trials);
    curve.inconclusive.push_back(inconclusive / trials);
    curve.pass.push_back((trials - regression - inconclusive) / trials);
    curve.mean_pairs.push_back(pairs / trials);
  }
  return curve;
}

}  // namespace attnbench
