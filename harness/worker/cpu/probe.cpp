#include "harness/worker/cpu/probe.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "harness/statistics/statistics.h"
#include "harness/worker/cpu/fixed_work.h"
#include "harness/worker/timing.h"

namespace attnbench {
namespace {

constexpr int kRepeats = 3;
constexpr int64_t kFmaRounds = 1500;            // takes about 5 µs
constexpr int64_t kReadCount = (64 << 10) / 8;  // 64 KiB, which take about 5 µs
constexpr int64_t kDataCount = (32 << 20) / 8;  // 32 MiB for all threads: larger than a second-level cache

std::atomic<double> sink;  // stores the results, so that the compiler cannot drop the work

}  // namespace

Probe::Probe(int64_t threads)
    : threads_(threads),
      data_(size_t(std::max(kDataCount, 4 * kRepeats * kReadCount * threads)), 1),
      of_threads_(size_t(threads)) {}

ProbeTimes Probe::take() {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  const auto parts = int64_t(data_.size()) / kReadCount;
  const auto first = next_;
  next_ = (next_ + threads_ * kRepeats) % parts;
  at::parallel_for(0, threads_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      ProbeTimes best{infinity, infinity};
      for (int64_t i = 0; i < kRepeats; ++i) {
        const auto* data = data_.data() + (first + thread * kRepeats + i) % parts * kReadCount;
        const auto arithmetic = time_on_host([&] { sink = fma_kernels().float32(kFmaRounds); });
        const auto memory = time_on_host([&] { sink = double(read_sum(data, kReadCount)); });
        best.arithmetic_us = std::min(best.arithmetic_us, arithmetic.s * 1e6);
        best.memory_us = std::min(best.memory_us, memory.s * 1e6);
      }
      of_threads_[size_t(thread)] = best;
    }
  });
  ProbeTimes slowest;
  for (const auto& times : of_threads_) {
    slowest.arithmetic_us = std::max(slowest.arithmetic_us, times.arithmetic_us);
    slowest.memory_us = std::max(slowest.memory_us, times.memory_us);
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
