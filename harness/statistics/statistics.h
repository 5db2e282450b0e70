// Statistics of samples, as pure functions. No function changes what it is given; none takes an empty sample unless it says so.
#pragma once

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

// Quantile by linear interpolation between order statistics (type 7, NumPy's and R's default).
double quantile(std::span<const double> sorted, double probability);

double median(std::vector<double> samples);

// Medians of `resamples` draws with replacement, ascending. `pick` gives the index of the next value drawn, below samples.size().
std::vector<double> bootstrap_medians(std::span<const double> samples, int resamples, const std::function<size_t()>& pick);

// Percentile bootstrap interval of the median at 95 %, the same for the same samples.
Interval median_interval(std::span<const double> samples);

// ------------------------------------------------------------ two samples

// Two-sided p of the Mann–Whitney U test: whether values of `b` tend to be larger or smaller than those of `a`. Exact (all
// arrangements of the ranks) where no values tie and a.size()·b.size() ≤ 10⁴; otherwise normal, corrected for ties and
// continuity. 1 where nothing tells them apart.
double mann_whitney_p(std::span<const double> a, std::span<const double> b);
double mann_whitney_exact_p(std::span<const double> a, std::span<const double> b);       // without ties
double mann_whitney_asymptotic_p(std::span<const double> a, std::span<const double> b);  // 1 when all values are equal

// Two-sided p of Wilcoxon's signed-rank test: whether differences of pairs tend to be above or below zero. Exact over all signs
// of the ranks, ties sharing their mean rank; zeros are left out, and 1 where nothing else is there. Takes O(n³).
double signed_rank_p(std::span<const double> differences);

// How much larger b is than a, as log(b/a) of positive values: the median of all differences of logarithms (Hodges–Lehmann), and
// the interval of shifts that the exact Mann–Whitney test does not refuse at 1 − confidence. Ends are infinite where so few
// values refuse nothing.
struct LogRatio {
  double estimate = 0;
  Interval interval;
};
LogRatio log_ratio(std::span<const double> a, std::span<const double> b, double confidence = 0.95);
// Likewise from the logarithms of the ratios of pairs: the median of the means of any two of them, one and itself included, and
// the interval of the signed-rank test.
LogRatio paired_log_ratio(std::span<const double> log_ratios, double confidence = 0.95);

// Adjusted p values, in the order given: each is the smallest level of the whole family at which Holm's procedure refuses its
// hypothesis. May be empty.
std::vector<double> holm(const std::vector<double>& p);

// ------------------------------------------------------------ lines

double student_t_cdf(double t, double degrees_of_freedom);
double student_t_quantile(double probability, double degrees_of_freedom);

// y ≈ intercept + slope·x by least squares. The interval is Student's; it is infinite for two points.
struct LineFit {
  double slope = 0, intercept = 0, slope_error = 0;
  Interval slope_interval;
};
// At least two points, not all of one x.
LineFit fit_line(std::span<const double> x, std::span<const double> y, double confidence = 0.95);

// Where a quantity that is known at ascending x, with an interval at each, goes through zero for the first time; linear between
// the points. The interval's ends are where its low and high ends do so; an end that does not is infinite (−∞ at the low end).
struct Crossing {
  double at = 0;
  Interval interval;
  bool rises = false;  // from below zero to above
};
std::optional<Crossing> first_crossing(std::span<const double> x, std::span<const double> value,
                                       std::span<const Interval> intervals);

}  // namespace attnbench
