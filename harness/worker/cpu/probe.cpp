// Times short chains of multiply-adds and of dependent reads on each thread.
#include "harness/worker/cpu/probe.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <random>

#include "harness/statistics/statistics.h"
#include "harness/worker/cpu/fixed_work.h"
#include "harness/worker/timing/timing.h"

namespace attnbench {
namespace {

constexpr int kRepeats = 3;
constexpr int64_t kFmaRounds = 1000;  // takes about 3 µs
constexpr int kReads = 32;            // of each chain; takes about 8 µs
constexpr size_t kBytes = 32 << 20;   // of all lines: larger than a second-level cache

std::atomic<double> probe_sink;  // stores the results, so that the compiler cannot drop the work

}  // namespace

Probe::Probe(int64_t threads) : lines_(kBytes / sizeof(Line)), of_threads_(size_t(threads)) {
  std::vector<uint32_t> order(lines_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(20200629));
  for (size_t i = 0; i < order.size(); ++i) lines_[order[i]].next = order[(i + 1) % order.size()];
  const auto chains = of_threads_.size() * kChains;
  for (size_t i = 0; i < chains; ++i) of_threads_[i / kChains].at[i % kChains] = order[i * order.size() / chains];
}

// Each read needs the result of the one before it in its chain; the chains are independent.
void Probe::follow(const std::vector<Line>& lines, Thread& thread) {
  auto at = thread.at;
  for (int i = 0; i < kReads; ++i)
    for (auto& place : at) place = lines[place].next;
  thread.at = at;
}

ProbeTimes Probe::take() {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  at::parallel_for(0, int64_t(of_threads_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto& thread = of_threads_[size_t(i)];
      thread.best = {infinity, infinity};
      for (int repeat = 0; repeat < kRepeats; ++repeat) {
        const auto arithmetic = time_on_host([&] { probe_sink = narrow_fma(kFmaRounds); });
        const auto memory = time_on_host([&] { follow(lines_, thread); });
        thread.best.arithmetic_us = std::min(thread.best.arithmetic_us, arithmetic.s * 1e6);
        thread.best.memory_us = std::min(thread.best.memory_us, memory.s * 1e6);
      }
    }
  });
  ProbeTimes slowest;
  for (const auto& thread : of_threads_) {
    slowest.arithmetic_us = std::max(slowest.arithmetic_us, thread.best.arithmetic_us);
    slowest.memory_us = std::max(slowest.memory_us, thread.best.memory_us);
  }
  return slowest;
}

ProbeTimes best_of(const std::vector<ProbeTimes>& probes) {
  if (probes.empty()) return {};
  const auto decile = [&](double ProbeTimes::*time) {
    std::vector<double> sorted;
    for (const auto& probe : probes) sorted.push_back(probe.*time);
    std::sort(sorted.begin(), sorted.end());
    return quantile(sorted, 0.1);
  };
  return {decile(&ProbeTimes::arithmetic_us), decile(&ProbeTimes::memory_us)};
}

}  // namespace attnbench
