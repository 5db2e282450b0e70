// Increases times or counts of calls by a percentage.
#include "harness/worker/timing/injected_slowdown.h"

#include <cmath>

namespace attnbench {

std::vector<double> slowed_down(std::vector<double> times, double percent) {
  for (auto& time : times) time *= 1 + percent / 100;
  return times;
}

int64_t slowed_down_count(int64_t calls, double percent) { return int64_t(std::lround(double(calls) * (1 + percent / 100))); }

}  // namespace attnbench
