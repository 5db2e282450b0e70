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

namespace {

// Looks at samples now and then and says why there are enough of them; empty while there are not.
class StoppingRule {
 public:
  explicit StoppingRule(const SamplingPlan& plan) : plan_(plan), next_look_(size_t(plan.min_samples)) {}

  std::string reason(const std::vector<double>& samples, double elapsed_s) {
    if (samples.size() < next_look_) return "";
    // Looking sorts all samples, so look less often as they grow.
    next_look_ += 1 + next_look_ / 10;
    if (relative_noise(samples) <= plan_.noise_target) return "noise_target";
    return elapsed_s >= plan_.time_budget_s ? "time_budget" : "";
  }

 private:
  const SamplingPlan& plan_;
  size_t next_look_;
};

}  // namespace

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
  StoppingRule rule(plan);
  while (samples.stop_reason.empty()) {
    if (before_sample) before_sample();
    const auto seconds = time_once([&] {
      for (int64_t i = 0; i < samples.calls_per_sample; ++i) call();
    });
    sampled_s += seconds;
    samples.ms.push_back(seconds * 1e3 / double(samples.calls_per_sample));
    samples.stop_reason = rule.reason(samples.ms, sampled_s);
  }
  samples.total_s += sampled_s;
  return samples;
}

Samples take_rounds(const SamplingPlan& plan, int64_t steps, const std::function<void()>& begin_round,
                    const std::function<void()>& step, const std::function<void()>& before_sample) {
  Samples samples;
  double elapsed_s = 0;
  StoppingRule rule(plan);
  while (samples.stop_reason.empty()) {
    elapsed_s += time_once([&] {
      begin_round();
      for (int64_t i = 0; i < steps; ++i) {
        if (before_sample) before_sample();
        const auto seconds = time_once(step);
        samples.ms.push_back(seconds * 1e3);
        samples.total_s += seconds;
      }
    });
    samples.stop_reason = rule.reason(samples.ms, elapsed_s);
  }
  return samples;
}

}  // namespace attnbench
