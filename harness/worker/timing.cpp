#include "harness/worker/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace attnbench {

double time_once(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double relative_noise(std::vector<double> samples) {
  const auto n = double(samples.size());
  if (n < 6) return std::numeric_limits<double>::infinity();
  std::sort(samples.begin(), samples.end());
  // Normal approximation of the binomial ranks around the median.
  const auto reach = 1.96 * std::sqrt(n) / 2;
  const auto low = size_t(std::max(0.0, std::floor(n / 2 - reach)));
  const auto high = std::min(samples.size() - 1, size_t(std::ceil(n / 2 + reach)));
  return (samples[high] - samples[low]) / 2 / samples[samples.size() / 2];
}

Samples take_samples(const SamplingPlan& plan, const std::function<void()>& call, const std::function<void()>& before_sample) {
  Samples samples;
  double fastest_s = std::numeric_limits<double>::infinity();
  while (samples.warmup_calls == 0 || samples.total_s < plan.warmup_s) {
    const auto seconds = time_once(call);
    fastest_s = std::min(fastest_s, seconds);
    samples.total_s += seconds;
    ++samples.warmup_calls;
  }
  samples.calls_per_sample = std::max<int64_t>(1, int64_t(std::ceil(plan.min_sample_ms / 1e3 / std::max(fastest_s, 1e-9))));

  double sampled_s = 0;
  for (size_t next_look = size_t(plan.min_samples); samples.stop_reason.empty();) {
    if (before_sample) before_sample();
    const auto seconds = time_once([&] {
      for (int64_t i = 0; i < samples.calls_per_sample; ++i) call();
    });
    sampled_s += seconds;
    samples.ms.push_back(seconds * 1e3 / double(samples.calls_per_sample));
    if (samples.ms.size() < next_look) continue;
    // Looking sorts all samples, so look less often as they grow.
    next_look += 1 + next_look / 10;
    if (relative_noise(samples.ms) <= plan.noise_target) samples.stop_reason = "noise_target";
    else if (sampled_s >= plan.time_budget_s) samples.stop_reason = "time_budget";
  }
  samples.total_s += sampled_s;
  return samples;
}

}  // namespace attnbench
