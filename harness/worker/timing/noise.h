// Measures how noisy the machine is, with work that is always the same.
#pragma once

#include "harness/schema/record.h"

namespace attnbench {

// Repeats the same work on all processors for this many seconds: about a millisecond of multiply-adds, and about a millisecond of
// reading memory. Returns a record with the time of each repetition in time_samples_ms, and the columns of the group
// "disturbance".
Record measure_noise(double seconds);

}  // namespace attnbench
