// Statistics of samples, as pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace attnbench {

// Quantile by linear interpolation between order statistics (type 7, NumPy's and R's default). `sorted` must not be empty.
double quantile(std::span<const double> sorted, double probability);

double median(std::vector<double> samples);

// Percentile bootstrap interval of the median at 95 %, the same for the same samples.
std::pair<double, double> median_interval(std::span<const double> samples);

}  // namespace attnbench
