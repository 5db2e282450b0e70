// What the worker knows of its build and its machine, and the methods that it has.
#pragma once

#include "harness/schema/record.h"

namespace attnbench {

// The environment columns of a record.
Record environment();

// Every registered method as data: name, description, orders of growth, capabilities and options.
Json describe_methods();

}  // namespace attnbench
