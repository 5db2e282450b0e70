#include "harness/driver/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "harness/driver/errors.h"

namespace attnbench {

Gate::Gate(size_t cases, GatePlan plan) : plan_(std::move(plan)), decided_on_(cases), judgements_(cases) {
  constexpr int kFewest = 8;  // at 8 against 8 the smallest p is 1.6e-4
  if (plan_.looks.empty() || plan_.looks.front() < kFewest || !std::is_sorted(plan_.looks.begin(), plan_.looks.end()) ||
      std::adjacent_find(plan_.looks.begin(), plan_.looks.end()) != plan_.looks.end())
    throw UsageError(fmt::format("the gate looks after ascending numbers of processes, {} at the least", kFewest));
}

int Gate::next_look() const { return looks_taken_ < plan_.looks.size() ? plan_.looks[looks_taken_] : 0; }

std::vector<size_t> Gate::open() const {
  std::vector<size_t> cases;
  if (next_look() == 0) return cases;
  for (size_t i = 0; i < judgements_.size(); ++i)
    if (judgements_[i].verdict == Verdict::inconclusive) cases.push_back(i);
  return cases;
}

void Gate::look(const std::vector<TwoSides>& medians) {
  for (const auto i : open()) decided_on_[i] = medians.at(i);
  ++looks_taken_;
  auto criteria = plan_.criteria;
  criteria.alpha /= double(plan_.looks.size());
  const auto now = judge(decided_on_, criteria);
  for (size_t i = 0; i < now.size(); ++i)
    if (judgements_[i].verdict == Verdict::inconclusive) judgements_[i] = now[i];
}

ErrorRates resample_gate(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b, bool same,
                         const GatePlan& plan, int trials, uint64_t seed) {
  const auto most = size_t(plan.looks.back());
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].size() < (same ? 2 * most : most) || b[i].size() < most)
      throw UsageError(
          fmt::format("resampling {} processes a side needs more recordings than {} and {}", most, a[i].size(), b[i].size()));
  std::mt19937_64 random(seed);
  ErrorRates rates;
  rates.trials = trials;
  rates.regression.resize(a.size());
  rates.inconclusive.resize(a.size());
  double processes = 0;
  const auto drawn = [&](std::vector<double> from, size_t count) {
    for (size_t i = 0; i < count; ++i)
      std::swap(from[i], from[i + std::uniform_int_distribution<size_t>(0, from.size() - 1 - i)(random)]);
    from.resize(count);
    return from;
  };
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<TwoSides> all(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (same) {
        const auto both = drawn(a[i], 2 * most);
        all[i] = {{both.begin(), both.begin() + std::ptrdiff_t(most)}, {both.begin() + std::ptrdiff_t(most), both.end()}};
      } else {
        all[i] = {drawn(a[i], most), drawn(b[i], most)};
      }
    }
    Gate gate(a.size(), plan);
    int before = 0;
    while (!gate.ended()) {
      const int count = gate.next_look();
      processes += double(gate.open().size()) * (count - before);
      before = count;
      std::vector<TwoSides> seen(a.size());
      for (const auto i : gate.open()) {
        seen[i].a.assign(all[i].a.begin(), all[i].a.begin() + count);
        seen[i].b.assign(all[i].b.begin(), all[i].b.begin() + count);
      }
      gate.look(seen);
    }
    bool any_regression = false, any_inconclusive = false;
    for (size_t i = 0; i < a.size(); ++i) {
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
  rates.mean_processes = processes / double(trials) / double(std::max<size_t>(1, a.size()));
  return rates;
}

}  // namespace attnbench
