// What the worker knows of its build and its machine.
#pragma once

#include "harness/schema/record.h"

namespace attnbench {

// The environment columns of a record.
Record environment();

// Every registered method as data: name, description, orders, capabilities, options.
Json describe_methods();

}  // namespace attnbench
