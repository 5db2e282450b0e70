// The CPU as the device of a case.
#pragma once

#include <cstdint>

#include "harness/worker/device.h"

namespace attnbench {

Device& cpu_device();

// Returns a number of bytes that the CPU's caches cannot hold: twice the size of the last-level cache, but from `min` to `max`.
int64_t bytes_beyond_caches(int64_t min, int64_t max);

}  // namespace attnbench
