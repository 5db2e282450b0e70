// Says how noisy a machine is, from repetitions of work that is always the same.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

struct NoiseReport {
  size_t samples = 0;
  double median_ms = 0;
  double disturbed_share = 0;  // of the samples, by the probes and counters beside them
  double longest_s = 0;        // the longest run of disturbed samples
  // Half the distance from the 5th to the 95th percentile, over the median. A window is a second of samples, as a process may
  // take.
  double samples_spread = 0;  // of single samples
  double windows_spread = 0;  // of the medians of windows: how far absolute times of processes differ
  double kept_spread = 0;     // of the medians of the undisturbed samples of windows; NaN if too few windows have any
  double ratios_spread = 0;   // of the ratios of the odd and the even samples of a window: how far ratios in turns differ
  double run_delay_share = 0, steal_share = 0, system_share = 0, load = 0;
  std::vector<std::string> advice;  // what helps, in sentences; never empty
};

// Reads the answer of the worker's command `noise`. The record must have at least ten samples.
NoiseReport noise_of(const Record& record);

}  // namespace attnbench
