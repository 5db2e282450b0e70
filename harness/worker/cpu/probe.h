// A probe runs a fixed amount of work between samples. Its time tells how fast the machine is at that moment, independently of
// the method that is measured.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace attnbench {

// The times of one probe, in microseconds; 0 if they are unknown.
struct ProbeTimes {
  double arithmetic_us = 0;  // multiply-adds in registers
  double memory_us = 0;      // reading data that no second-level cache holds
};

// Takes probes on as many threads as the case has, all at once, because another program may disturb any of the processors.
class Probe {
 public:
  explicit Probe(int64_t threads);
  // Takes some tens of microseconds. Each thread does the work three times; its fastest counts, so that a single interrupt does
  // not show, and the slowest thread counts.
  ProbeTimes take();

 private:
  int64_t threads_;
  int64_t next_ = 0;  // the next part of the data
  std::vector<uint64_t> data_;
  std::vector<ProbeTimes> of_threads_;
};

// The best times that a machine reached in these probes: the first decile of each kind, so that one lucky probe does not count.
ProbeTimes best_of(const std::vector<ProbeTimes>& probes);

}  // namespace attnbench
