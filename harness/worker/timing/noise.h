// Measures how noisy the machine is, with work that is always the same.
#pragma once

#include "harness/schema/record.h"

namespace attnbench {

// Repeats the same work, of about a millisecond of multiply-adds and one of reading memory, on all processors for so many
// seconds. Returns a record with the time of each repetition in time_samples_ms, and the columns of the group "disturbance".
Record measure_noise(double seconds);

}  // namespace attnbench
