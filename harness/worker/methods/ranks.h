// Which cases can be measured with their sequence split over several ranks.
#pragma once

#include <string>

#include "harness/schema/case.h"

namespace attnbench {

// Why the case, which has several ranks, cannot be measured; empty if it can. The driver has ranks measured by the Python package
// (python/attnbench/distributed/case.py), whose table OPERATORS must have these methods.
std::string why_not_split(const Case& c);

}  // namespace attnbench
