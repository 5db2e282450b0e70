// Numbers as strict JSON has them: what is not finite is null.
#pragma once

#include <cmath>

#include "harness/statistics/statistics.h"
#include "harness/schema/case.h"

namespace attnbench {

inline Json finite_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(); }
inline Json json_of(const Interval& interval) { return {finite_or_null(interval.low), finite_or_null(interval.high)}; }

}  // namespace attnbench
