// Computes quantiles, and the intervals and p values of rank tests.
#include "harness/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace attnbench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The ranks of all values of a and b together; ties share their mean rank.
struct Ranks {
  double sum_b = 0;  // the sum of the ranks of b
  double ties = 0;   // Σ (t³ − t) over the groups of t equal values
};
Ranks rank(std::span<const double> a, std::span<const double> b) {
  std::vector<std::pair<double, bool>> all;
  for (const auto value : a) all.emplace_back(value, false);
  for (const auto value : b) all.emplace_back(value, true);
  std::sort(all.begin(), all.end());
  Ranks ranks;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin, count_b = 0;
    for (; end < all.size() && all[end].first == all[begin].first; ++end) count_b += all[end].second ? 1 : 0;
    const auto group = double(end - begin);
    ranks.sum_b += double(count_b) * (double(begin + 1) + double(end)) / 2;
    ranks.ties += group * group * group - group;
    begin = end;
  }
  return ranks;
}

// The statistic U of a sample of n values: the number of pairs in which its value is the larger one; ties count one half.
double u_statistic(double rank_sum, size_t n) { return rank_sum - double(n) * double(n + 1) / 2; }

// P(U = u) for u = 0 … n·m, for samples of n and m values without ties. P(U = u) is proportional to the number of partitions of u
// into at most n parts of at most m each.
std::vector<double> u_distribution(size_t n, size_t m) {
  std::vector<double> ways(n * m + 1, 0);
  ways[0] = 1;
  // These numbers of partitions are the coefficients of the Gaussian binomial, the product of (1 − q^(m+i)) / (1 − q^i). The loop
  // multiplies one factor after another, and scales after each so that the numbers stay small.
  for (size_t i = 1; i <= n; ++i) {
    for (size_t u = n * m; u >= m + i && u != size_t(-1); --u) ways[u] -= ways[u - m - i];
    for (size_t u = i; u <= n * m; ++u) ways[u] += ways[u - i];
    const double scale = double(i) / double(m + i);
    for (auto& way : ways) way *= scale;
  }
  return ways;
}

// P(W = w) for w = 0, 1, …, where W is the sum of the ranks whose sign is positive and both signs are equally likely.
std::vector<double> signed_sum_distribution(const std::vector<size_t>& ranks) {
  std::vector<double> probability(std::accumulate(ranks.begin(), ranks.end(), size_t{0}) + 1, 0);
  probability[0] = 1;
  size_t max_sum = 0;
  for (const auto rank : ranks) {
    max_sum += rank;
    for (size_t sum = max_sum + 1; sum-- > 0;)
      probability[sum] = (probability[sum] + (sum >= rank ? probability[sum - rank] : 0)) / 2;
  }
  return probability;
}

// The statistic of the signed-rank test, and its distribution under the null hypothesis. Ranks are counted twice, so that they
// are whole numbers even where ties share a rank.
struct SignedRanks {
  std::vector<double> distribution;  // P(twice the sum of the positive ranks = w) for w = 0, 1, …
  size_t positive = 0;               // twice the sum of the positive ranks
};
SignedRanks signed_ranks(std::span<const double> differences) {
  std::vector<std::pair<double, bool>> sizes;
  for (const auto difference : differences)
    if (difference != 0) sizes.emplace_back(std::abs(difference), difference > 0);
  std::sort(sizes.begin(), sizes.end());
  std::vector<size_t> twice_ranks;
  SignedRanks ranks;
  for (size_t begin = 0; begin < sizes.size();) {
    size_t end = begin;
    while (end < sizes.size() && sizes[end].first == sizes[begin].first) ++end;
    for (size_t i = begin; i < end; ++i) {
      twice_ranks.push_back(begin + 1 + end);
      if (sizes[i].second) ranks.positive += twice_ranks.back();
    }
    begin = end;
  }
  ranks.distribution = signed_sum_distribution(twice_ranks);
  return ranks;
}

// P(W ≤ w) of a distribution over 0, 1, …
double lower_tail(const std::vector<double>& distribution, size_t w) {
  return std::min(1.0, std::accumulate(distribution.begin(), distribution.begin() + std::ptrdiff_t(w + 1), 0.0));
}

// How many of `count` ascending shifts a two-sided test at the level 1 − confidence rejects at each end. `distribution` is that
// of the test's statistic; the tail beyond a rejected shift holds at most half the level.
size_t rejected_at_each_end(const std::vector<double>& distribution, size_t count, double confidence) {
  // A tail of exactly half the level, such as 1/20 of three values against three at 90 %, may be larger by a rounding error.
  const double half_level = (1 - confidence) / 2 * (1 + 1e-9);
  size_t rejected = 0;
  for (double tail = distribution[0]; rejected < count / 2 && tail <= half_level;) {
    ++rejected;
    tail += distribution[rejected];
  }
  return rejected;
}
// The median of the shifts, and the interval of the shifts that the test does not reject.
LogRatio invert_test(std::vector<double> shifts, const std::vector<double>& distribution, double confidence) {
  std::sort(shifts.begin(), shifts.end());
  const auto rejected = rejected_at_each_end(distribution, shifts.size(), confidence);
  if (rejected == 0) return {quantile(shifts, 0.5), {-kInfinity, kInfinity}};
  return {quantile(shifts, 0.5), {shifts[rejected - 1], shifts[shifts.size() - rejected]}};
}

double normal_tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

// The regularised incomplete beta function I_x(a, b) by its continued fraction (modified Lentz's method), which converges fast
// for x < (a + 1) / (a + b + 2).
double incomplete_beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::abs(d) < tiny ? tiny : d);
  double fraction = d;
  for (int i = 1; i <= 1000; ++i) {
    const double m = i;
    for (const double numerator :
         {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 + numerator * d;
      d = 1 / (std::abs(d) < tiny ? tiny : d);
      c = 1 + numerator / c;
      if (std::abs(c) < tiny) c = tiny;
      fraction *= d * c;
    }
    if (std::abs(d * c - 1) < 1e-16) break;
  }
  return std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)) / a * fraction;
}
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  return x < (a + 1) / (a + b + 2) ? incomplete_beta_fraction(a, b, x) : 1 - incomplete_beta_fraction(b, a, 1 - x);
}

// P(T > t) for t ≥ 0, with full relative precision even if the probability is tiny.
double student_t_tail(double t, double degrees) { return 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)); }

// Where a line through these points crosses zero for the first time, and whether it rises there.
std::optional<std::pair<double, bool>> first_zero(std::span<const double> x, const std::vector<double>& y) {
  for (size_t i = 0; i + 1 < x.size(); ++i) {
    if (y[i] == 0 || y[i] * y[i + 1] >= 0) {
      // A point at exactly zero is a crossing if its neighbours have different signs.
      if (i > 0 && y[i] == 0 && y[i - 1] * y[i + 1] < 0) return std::pair(x[i], y[i + 1] > 0);
      continue;
    }
    return std::pair(x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1]), y[i + 1] > 0);
  }
  return std::nullopt;
}

}  // namespace

double quantile(std::span<const double> sorted, double probability) {
  const double position = probability * double(sorted.size() - 1);
  const auto below = size_t(position);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - double(below)) * (sorted[above] - sorted[below]);
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return quantile(samples, 0.5);
}

Interval order_statistic_interval(std::vector<double> values) {
  constexpr double kConfidence = 0.95;
  std::sort(values.begin(), values.end());
  const auto n = values.size();
  if (n < kMinValuesOfInterval) return {values.front(), values.back()};
  // The interval from the d-th smallest to the d-th largest value covers the median with the probability 1 − 2·P(X < d), where X
  // is binomial with n trials of probability 1/2.
  double log_probability = -double(n) * std::log(2.0);  // of X = d
  double below = std::exp(log_probability);             // P(X < d)
  double wide = 1 - 2 * below, narrow = wide;           // the coverage with d, and with d + 1
  size_t d = 0;
  do {
    ++d;
    wide = narrow;
    log_probability += std::log(double(n - d + 1) / double(d));
    below += std::exp(log_probability);
    narrow = 1 - 2 * below;
  } while (narrow >= kConfidence);
  const double part = (wide - kConfidence) / (wide - narrow);
  const double weight = double(n - d) * part / (double(d) + double(n - 2 * d) * part);
  return {(1 - weight) * values[d - 1] + weight * values[d], (1 - weight) * values[n - d] + weight * values[n - d - 1]};
}

double mann_whitney_exact_p(std::span<const double> a, std::span<const double> b) {
  const auto u = u_statistic(rank(a, b).sum_b, b.size());
  const auto distribution = u_distribution(a.size(), b.size());
  const auto smaller = size_t(std::min(u, double(a.size() * b.size()) - u));
  return std::min(1.0, 2 * std::accumulate(distribution.begin(), distribution.begin() + std::ptrdiff_t(smaller + 1), 0.0));
}

double mann_whitney_asymptotic_p(std::span<const double> a, std::span<const double> b) {
  const auto ranks = rank(a, b);
  const auto n = double(a.size()), m = double(b.size()), total = n + m;
  const double variance = n * m / 12 * (total + 1 - ranks.ties / (total * (total - 1)));
  if (!(variance > 0)) return 1;
  const double distance = std::abs(u_statistic(ranks.sum_b, b.size()) - n * m / 2);
  return std::min(1.0, 2 * normal_tail((distance - 0.5) / std::sqrt(variance)));
}

double mann_whitney_p(std::span<const double> a, std::span<const double> b) {
  constexpr size_t kMaxPairs = 10'000;
  if (a.size() * b.size() <= kMaxPairs && rank(a, b).ties == 0) return mann_whitney_exact_p(a, b);
  return mann_whitney_asymptotic_p(a, b);
}

double signed_rank_p(std::span<const double> differences) {
  const auto [distribution, positive] = signed_ranks(differences);
  return std::min(1.0, 2 * lower_tail(distribution, std::min(positive, distribution.size() - 1 - positive)));
}

double signed_rank_greater_p(std::span<const double> differences) {
  // The distribution is symmetric, so its upper tail is the lower tail of the sum of the negative ranks.
  const auto [distribution, positive] = signed_ranks(differences);
  return lower_tail(distribution, distribution.size() - 1 - positive);
}

LogRatio paired_log_ratio(std::span<const double> log_ratios, double confidence) {
  std::vector<double> means;
  for (size_t i = 0; i < log_ratios.size(); ++i)
    for (size_t j = 0; j <= i; ++j) means.push_back((log_ratios[i] + log_ratios[j]) / 2);
  std::vector<size_t> ranks(log_ratios.size());
  std::iota(ranks.begin(), ranks.end(), size_t{1});
  return invert_test(std::move(means), signed_sum_distribution(ranks), confidence);
}

LogRatio log_ratio(std::span<const double> a, std::span<const double> b, double confidence) {
  std::vector<double> differences;
  for (const auto y : b)
    for (const auto x : a) differences.push_back(std::log(y) - std::log(x));
  return invert_test(std::move(differences), u_distribution(a.size(), b.size()), confidence);
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return p[i] < p[j]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, std::min(1.0, double(p.size() - rank) * p[order[rank]]));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

double student_t_cdf(double t, double degrees) { return t > 0 ? 1 - student_t_tail(t, degrees) : student_t_tail(-t, degrees); }

double student_t_quantile(double probability, double degrees) {
  if (probability == 0.5) return 0;
  const double tail = std::min(probability, 1 - probability);
  double low = 0, high = 1;
  while (student_t_tail(high, degrees) > tail && high < 1e300) high *= 2;
  while (high - low > 1e-15 * high) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (student_t_tail(middle, degrees) > tail ? low : high) = middle;
  }
  return probability > 0.5 ? high : -high;
}

MeanEstimate mean_estimate(std::span<const double> values, double confidence) {
  const auto n = double(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return {mean, {-kInfinity, kInfinity}};
  double squares = 0;
  for (const auto value : values) squares += (value - mean) * (value - mean);
  const double half_width = student_t_quantile((1 + confidence) / 2, n - 1) * std::sqrt(squares / (n - 1) / n);
  return {mean, {mean - half_width, mean + half_width}};
}

LineFit fit_line(std::span<const double> x, std::span<const double> y, double confidence) {
  const auto n = double(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n, mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  LineFit fit;
  fit.slope = xy / xx;
  fit.intercept = mean_y - fit.slope * mean_x;
  if (x.size() < 3) {
    fit.slope_error = kInfinity;
    fit.slope_interval = {-kInfinity, kInfinity};
    return fit;
  }
  double residual_squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double residual = y[i] - fit.intercept - fit.slope * x[i];
    residual_squares += residual * residual;
  }
  fit.slope_error = std::sqrt(residual_squares / (n - 2) / xx);
  const double half_width = student_t_quantile((1 + confidence) / 2, n - 2) * fit.slope_error;
  fit.slope_interval = {fit.slope - half_width, fit.slope + half_width};
  return fit;
}

std::optional<Crossing> first_crossing(std::span<const double> x, std::span<const double> value,
                                       std::span<const Interval> intervals) {
  const auto middle = first_zero(x, {value.begin(), value.end()});
  if (!middle) return std::nullopt;
  std::vector<double> low, high;
  for (const auto& interval : intervals) {
    low.push_back(interval.low);
    high.push_back(interval.high);
  }
  // Where the quantity rises, the high ends cross zero first and the low ends last.
  const auto early = first_zero(x, middle->second ? high : low), late = first_zero(x, middle->second ? low : high);
  Crossing crossing{middle->first, {-kInfinity, kInfinity}, middle->second};
  if (early && early->second == crossing.rises) crossing.interval.low = std::min(early->first, crossing.at);
  if (late && late->second == crossing.rises) crossing.interval.high = std::max(late->first, crossing.at);
  return crossing;
}

}  // namespace attnbench
