// Made-up measurements for the tests of the gate: log ratios of pairs of processes, drawn with a fixed seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace attnbench {

// The first `count` of the values.
inline std::vector<double> first(std::vector<double> values, size_t count) {
  values.resize(count);
  return values;
}

// Draws the log ratios of pairs of processes: the logarithm of `ratio` plus normal noise.
class Ratios {
 public:
  explicit Ratios(uint64_t seed) : random_(seed) {}
  std::vector<double> around(double ratio, double noise, int count) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(std::log(ratio) + std::normal_distribution<double>(0, noise)(random_));
    return values;
  }

 private:
  std::mt19937_64 random_;
};

// Draws the noise of one log ratio, which is symmetric about 0.
using Noise = std::function<double(std::mt19937_64&)>;
// Distributions that differ in their tails.
inline std::vector<std::pair<const char*, Noise>> noises() {
  const auto normal = [](std::mt19937_64& random) { return std::normal_distribution<double>(0, 0.02)(random); };
  // Student's t distribution with two degrees of freedom, whose variance is infinite.
  const auto heavy = [](std::mt19937_64& random) { return 0.02 * std::student_t_distribution<double>(2)(random); };
  // The times themselves are skewed: disturbances make them longer only. Their ratio is symmetric, since both sides are alike.
  const auto skewed_times = [](std::mt19937_64& random) {
    std::exponential_distribution<double> disturbance(30);
    const double base = disturbance(random);
    return disturbance(random) - base;
  };
  // One pair in five is in a phase that slows one of its processes down by a third.
  const auto phases = [normal](std::mt19937_64& random) {
    const double phase = std::uniform_real_distribution<double>()(random);
    return normal(random) + (phase < 0.1 ? 0.29 : phase < 0.2 ? -0.29 : 0);
  };
  return {{"normal", normal}, {"heavy tails", heavy}, {"skewed times", skewed_times}, {"phases", phases}};
}

// The highest share that chance leaves likely if the true probability is `level`: three standard errors above it.
inline double highest_likely(double level, int trials) { return level + 3 * std::sqrt(level * (1 - level) / trials); }

}  // namespace attnbench
