// A test hook: a case can be made slower by a known share (the setting injected_slowdown_percent), so that tests of comparisons
// know what the comparison should find. It wastes time of the CPU.
#pragma once

#include <cstdint>
#include <functional>

namespace attnbench {

// The call, followed by a loop on this thread that lasts `percent` of the call's own time.
std::function<void()> slowed_down(std::function<void()> call, double percent);

// `calls`, and `percent` of them more: the slowdown of what is counted instead of timed.
int64_t slowed_down_count(int64_t calls, double percent);

}  // namespace attnbench
