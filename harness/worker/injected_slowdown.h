// A test hook that makes a case slower by a known share (the setting injected_slowdown_percent), so that tests of comparisons
// know which result to expect. It wastes time on the CPU.
#pragma once

#include <cstdint>
#include <functional>

namespace attnbench {

// Returns a function that makes the call, then loops on this thread for `percent` of the time that the call took.
std::function<void()> slowed_down(std::function<void()> call, double percent);

// `calls` increased by `percent`: the slowdown for calls whose instructions are counted instead of timed.
int64_t slowed_down_count(int64_t calls, double percent);

}  // namespace attnbench
