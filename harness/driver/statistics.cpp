#include "harness/driver/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace attnbench {

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

std::pair<double, double> median_interval(std::span<const double> samples) {
  constexpr int resamples = 1000;
  std::mt19937_64 random(20200629);  // fixed, so that a record can be computed again from its samples
  std::uniform_int_distribution<size_t> pick(0, samples.size() - 1);
  std::vector<double> medians, resample(samples.size());
  for (int i = 0; i < resamples; ++i) {
    for (auto& value : resample) value = samples[pick(random)];
    const auto middle = resample.begin() + std::ptrdiff_t(resample.size() / 2);
    std::nth_element(resample.begin(), middle, resample.end());
    auto value = *middle;
    if (resample.size() % 2 == 0) value = (value + *std::max_element(resample.begin(), middle)) / 2;
    medians.push_back(value);
  }
  std::sort(medians.begin(), medians.end());
  return {quantile(medians, 0.025), quantile(medians, 0.975)};
}

}  // namespace attnbench
