// Numbers in JSON, which has none for NaN and infinity: they become null.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "harness/schema/case.h"
#include "harness/statistics/statistics.h"

namespace attnbench {

inline Json finite_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(); }
inline Json json_of(const Interval& interval) { return {finite_or_null(interval.low), finite_or_null(interval.high)}; }

// The number in this column of a line; NaN if it has none.
inline double number_in(const Json& line, const char* column) {
  const auto found = line.find(column);
  return found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
}

// The number in a form of fmt, such as "{:.4g}", or a dash for NaN.
inline std::string number_text(double number, const char* form) {
  return std::isnan(number) ? "–" : fmt::format(fmt::runtime(form), number);
}

}  // namespace attnbench
