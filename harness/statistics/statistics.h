// Statistics of samples, as pure functions. No argument may be empty, and none may hold NaN, unless the function says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace attnbench {

struct Interval {
  double low = 0, high = 0;
  bool operator==(const Interval&) const = default;
};

// The quantile of ascending values, by linear interpolation between order statistics (Hyndman and Fan's type 7, the default of
// NumPy and R). `probability` is from 0 to 1.
double quantile(std::span<const double> sorted, double probability);

double median(std::vector<double> samples);

// The fewest values whose order statistics give a 95 % interval of the median.
inline constexpr size_t kMinValuesOfInterval = 6;

// An interval of the median of independent values from their order statistics, for any distribution. For six values or more it
// covers the median with a probability of 95 %, interpolated between the two nearest pairs of order statistics (Hettmansperger
// and Sheather 1986). For fewer values it is their range, which covers the median with a probability of 1 − 2^(1−n).
Interval order_statistic_interval(std::vector<double> values);

// The mean of independent values, and its interval by Student's t distribution, which is exact for normally distributed values.
// The interval is infinite for a single value.
struct MeanEstimate {
  double mean = 0;
  Interval interval;
};
MeanEstimate mean_estimate(std::span<const double> values, double confidence = 0.95);

// ------------------------------------------------------------ two samples

// The two-sided p value of the Mann–Whitney U test, which asks whether values of `b` tend to be larger or smaller than those of
// `a`. It is exact, over all arrangements of the ranks, if no values tie and a.size()·b.size() ≤ 10⁴. Otherwise it is the normal
// approximation, corrected for ties and continuity. It is 1 if all values are equal.
double mann_whitney_p(std::span<const double> a, std::span<const double> b);
double mann_whitney_exact_p(std::span<const double> a, std::span<const double> b);  // for samples without ties
double mann_whitney_asymptotic_p(std::span<const double> a, std::span<const double> b);

// The two-sided p value of Wilcoxon's signed-rank test, which asks whether the differences of pairs tend to be above or below
// zero. It is exact, over all signs of the ranks; ties share their mean rank. Zeros are left out, and the p value is 1 if nothing
// else is there. Takes O(n³) operations.
double signed_rank_p(std::span<const double> differences);
// The one-sided p value of the same test, which asks whether the differences tend to be above zero: the probability of a sum of
// positive ranks at least as large, if the differences are independent and symmetric about zero or about a value below it. For n
// differences it is at least 2^(−n).
double signed_rank_greater_p(std::span<const double> differences);

// How much larger b is than a, as log(b/a) of positive values. The estimate is the median of all differences of logarithms
// (Hodges–Lehmann). The interval holds the shifts that the exact Mann–Whitney test does not reject at the level 1 − confidence;
// its ends are infinite where there are too few values to reject any shift.
struct LogRatio {
  double estimate = 0;
  Interval interval;
};
LogRatio log_ratio(std::span<const double> a, std::span<const double> b, double confidence = 0.95);
// The same for pairs, from the logarithms of their ratios. The estimate is the median of the Walsh averages, which are the means
// of any two values and of each value with itself. The interval holds the shifts that the signed-rank test does not reject.
LogRatio paired_log_ratio(std::span<const double> log_ratios, double confidence = 0.95);

// The p values adjusted by Holm's procedure, in the given order: each is the smallest significance level over all hypotheses
// together at which the procedure rejects this one. `p` may be empty.
std::vector<double> holm(const std::vector<double>& p);

// ------------------------------------------------------------ lines

// The distribution function of Student's t distribution, and its inverse for a probability between 0 and 1, both exclusive.
double student_t_cdf(double t, double degrees_of_freedom);
double student_t_quantile(double probability, double degrees_of_freedom);

// y ≈ intercept + slope·x by least squares. slope_error is the standard error of the slope. Its interval uses Student's t
// distribution. Both are infinite for two points.
struct LineFit {
  double slope = 0, intercept = 0, slope_error = 0;
  Interval slope_interval;
};
// Takes at least two points whose x are not all equal.
LineFit fit_line(std::span<const double> x, std::span<const double> y, double confidence = 0.95);

// Where a quantity crosses zero for the first time. It is given at ascending x, with an interval at each x, and is linearly
// interpolated. The ends of the result's interval are where the low and the high ends of the given intervals cross zero in the
// same direction; an end is infinite if there is no such crossing.
struct Crossing {
  double at = 0;
  Interval interval;
  bool rises = false;  // whether the quantity goes from below zero to above
};
// Nothing if the quantity does not cross zero. All arguments have the same length.
std::optional<Crossing> first_crossing(std::span<const double> x, std::span<const double> value,
                                       std::span<const Interval> intervals);

}  // namespace attnbench
