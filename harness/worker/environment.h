// Describes the worker's build, its machine and its registered methods.
#pragma once

#include "harness/schema/record.h"

namespace attnbench {

// A record that holds only the columns of the group "environment".
Record environment();

// An array with every registered method: name, description, orders of growth, capabilities, options and diagnostics.
Json describe_methods();

}  // namespace attnbench
