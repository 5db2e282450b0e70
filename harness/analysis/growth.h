// How time and memory grow with the length, and whether that agrees with the orders that the methods declare.
//
// The exponent of a row is the slope of a line through the logarithms of lengths and values. It uses records of one batch size
// only, because a call with fewer sequences shares its fixed costs among fewer of them, so that the time of each would also
// grow where the batch shrinks.
//
// The interval of an exponent rests on what the records hold:
//  - Where every record has the medians of the same number of processes, at least kMinValuesOfInterval, a line is fitted to the
//    medians of each round. The rounds are independent, and what slows a whole round down cancels in its slope. The interval is
//    that of the mean slope by Student's t distribution. Order statistics of n slopes would reach a level of 1 − 2^(1−n) at most,
//    which is too little for many rows. This noise does not tell whether the points lie on a line, so the interval is widened to
//    contain the exponents that result without the shortest or without the longest length.
//  - Other times have one value a length. The interval is that of the slope by Student's t distribution from the scatter around
//    the line, which for three or four points is wide.
//  - Memory is counted, so it has no noise. The interval is the range of the slopes between neighbouring lengths.
//
// The intervals of the times hold together: each of m rows with a declared order has the level 1 − kErrorRate/m (Bonferroni), so
// that with a probability of at least 1 − kErrorRate no verdict of a row is wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/analysis/series.h"

namespace attnbench {

// The probability, over all rows together, that any verdict on the growth of a time is wrong.
inline constexpr double kErrorRate = 0.05;
// By how much an exponent may exceed the declared one. An order counts operations, which take longer once the data outgrow a
// cache. Over a range of lengths of a factor of 8, the margin allows the time of an operation to grow by a third (8^0.15 = 1.37).
// It does not tell O(N) and O(N log N) apart, whose exponents differ by 0.1 at these lengths.
inline constexpr double kExponentMargin = 0.15;

// An order is an upper bound, so growth below it does not contradict it.
enum class GrowthVerdict {
  consistent,        // the interval ends below the declared exponent plus the margin
  consistent_below,  // the same, and it ends below the declared exponent minus the margin: the quantity grows more slowly
  contradicts,       // the interval begins above the declared exponent plus the margin, and the smallest step is above it, too
  cannot_tell,       // anything else, and rows without an exponent
  none               // no order is declared
};
// "consistent with" for both verdicts of consistency, "contradicts", "cannot tell", and "" for none.
std::string_view verdict_name(GrowthVerdict verdict);

// What the interval of an exponent rests on.
enum class ExponentBasis { processes, points, counted };
std::string_view basis_name(ExponentBasis basis);

// How a quantity of a series grows with the length N: value ∝ N^exponent.
struct Order {
  const Series* series = nullptr;
  std::string quantity;
  // The order that the method declares, such as "O(N log N)", and the exponent that it amounts to over these lengths. Both are
  // empty where no order is declared.
  std::string declared;
  std::optional<double> declared_exponent;

  // The fitted lengths. The fit uses the batch size whose lengths reach furthest, of those with three lengths or more. It uses
  // the lengths from an eighth of the longest on, because at shorter ones the fixed costs of a call hide the growth; where these
  // are fewer than three, it uses the three longest.
  size_t lengths = 0;  // how many; fewer than three, the most that any batch size has, where nothing could be fitted
  double from = 0, to = 0;
  int64_t batch = 0;
  std::optional<double> exponent;
  Interval interval;
  ExponentBasis basis = ExponentBasis::points;
  // The smallest exponent between neighbouring lengths. If data outgrow a cache at one of the lengths, the exponent of all is
  // larger than the method's order, but the other steps are not.
  std::optional<double> smallest_step;

  GrowthVerdict verdict() const;
};

struct Growth {
  std::vector<Order> orders;  // one for each series and quantity that was measured
  size_t tests = 0;           // the number m of rows of times with an exponent and a declared order
  double confidence() const { return 1 - kErrorRate / double(tests > 0 ? tests : 1); }  // of the interval of each time
};

// `methods` is the array that the worker's command `describe` returns. The result points to elements of `series`.
Growth growth_of(const std::vector<Series>& series, const Json& methods);

Json json_of(const Order& order);

}  // namespace attnbench
