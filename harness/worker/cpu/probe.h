// A probe runs a fixed amount of work between samples. Its time tells how fast the machine is at that moment, independently of
// the method that is measured.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace attnbench {

// The times of one probe, in microseconds; 0 if they are unknown.
struct ProbeTimes {
  double arithmetic_us = 0;  // multiply-adds in registers
  double memory_us = 0;      // waiting for data that no second-level cache holds
};

// Takes probes on as many threads as the case has, all at once, because another program may disturb any of the processors.
class Probe {
 public:
  explicit Probe(int64_t threads);
  // Takes some tens of microseconds. Each thread does the work three times, and its fastest time counts, so that a single
  // interrupt does not show. The result is that of the slowest thread.
  ProbeTimes take();

 private:
  // The reads follow one random cycle through all lines, so that no prefetcher can guess the next one.
  struct alignas(64) Line {
    uint32_t next = 0;
  };
  static constexpr int kChains = 4;
  struct Thread {
    ProbeTimes best;
    std::array<uint32_t, kChains> at = {};  // the lines that the chains of reads have reached
  };
  static void follow(const std::vector<Line>& lines, Thread& thread);

  std::vector<Line> lines_;
  std::vector<Thread> of_threads_;
};

// The best times that a machine reached in these probes: the first decile of each kind, so that one lucky probe does not count.
ProbeTimes best_of(const std::vector<ProbeTimes>& probes);

}  // namespace attnbench
