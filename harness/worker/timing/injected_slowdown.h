// A test hook that makes a case slower by a known share (the setting injected_slowdown_percent), so that tests of comparisons
// know which result to expect.
//
// It lengthens the times that are reported, and lets the calls run as they are, because wasting time after a call does not slow
// the case down by a known share: a process that stays busy for longer may be preempted more often, a turn of a fixed length
// holds fewer of its calls, and the calls may find the caches and the clock of the processor in another state. A loop after each
// call, meant to waste 10 % of its time, lengthened the six cases of sweeps/ci.toml by 9.3 to 10.7 % on two nearly idle cores,
// by 10.0 to 13.1 % on a shared machine, and a longer case by 22 % (±8 %) beside other programs.
#pragma once

#include <cstdint>
#include <vector>

namespace attnbench {

// The times, each increased by `percent`.
std::vector<double> slowed_down(std::vector<double> times, double percent);

// `calls` increased by `percent`: the slowdown for calls whose instructions are counted instead of timed.
int64_t slowed_down_count(int64_t calls, double percent);

}  // namespace attnbench
