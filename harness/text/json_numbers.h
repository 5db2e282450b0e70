// Converts numbers to JSON, which has no number for NaN and infinity: they become null.
#pragma once

#include <cmath>

#include "harness/schema/case.h"
#include "harness/statistics/statistics.h"

namespace attnbench {

inline Json finite_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(); }
inline Json json_of(const Interval& interval) { return {finite_or_null(interval.low), finite_or_null(interval.high)}; }

}  // namespace attnbench
