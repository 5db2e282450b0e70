// Describes the worker's build, its machine and its registered methods.
#pragma once

#include "harness/schema/record.h"

namespace attnbench {

// A record that holds only the columns of the group "environment".
Record environment();

// An array with every registered method: name, description, orders of growth, capabilities, options, the CPU kernels that this
// build has for it (built_kernels), and diagnostics. The orders of one decoding step, decode_time_order and decode_memory_order,
// follow from the method's cost; they are empty for a method that does not decode.
Json describe_methods();

}  // namespace attnbench
