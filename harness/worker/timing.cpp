#include "harness/worker/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace attnbench {

Elapsed time_on_host(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {seconds, seconds};
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

void Samples::add(const Elapsed& elapsed, int64_t calls) {
  ms.push_back(elapsed.s * 1e3 / double(calls));
  wall_ms.push_back(elapsed.wall_s * 1e3 / double(calls));
}

void Samples::divide_calls(int64_t parts) {
  for (auto* times : {&ms, &wall_ms})
    for (auto& time : *times) time /= double(parts);
  calls_per_sample *= parts;
  warmup_calls *= parts;
}

std::function<void()> slowed_down(std::function<void()> call, double percent) {
  if (percent == 0) return call;
  return [call = std::move(call), percent] {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const auto end = std::chrono::steady_clock::now() + (std::chrono::steady_clock::now() - begin) * (percent / 100);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
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

constexpr double kTurnS = 0.01;

void add_median(Samples& samples, const Samples& turn) {
  const auto middle = [](std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  };
  samples.ms.push_back(middle(turn.ms));
  samples.wall_ms.push_back(middle(turn.wall_ms));
}

void end_turns(Samples& samples) {
  if (samples.ms.empty()) throw std::runtime_error("a process that it was to take turns with has ended");
  samples.stop_reason = "turns";
}

}  // namespace

Samples take_samples(const SamplingPlan& plan, const Stopwatch& stopwatch, const std::function<void()>& call,
                     const std::function<void()>& before_sample) {
  Samples samples;
  double fastest_s = std::numeric_limits<double>::infinity();
  while (samples.warmup_calls == 0 || samples.total_s < plan.warmup_s) {
    const auto elapsed = stopwatch(call);
    fastest_s = std::min(fastest_s, elapsed.s);
    samples.total_s += elapsed.wall_s;
    ++samples.warmup_calls;
  }
  samples.calls_per_sample = std::max<int64_t>(1, int64_t(std::ceil(plan.min_sample_ms / 1e3 / std::max(fastest_s, 1e-9))));

  double sampled_s = 0;
  const auto sample = [&] {
    if (before_sample) before_sample();
    const auto elapsed = stopwatch([&] {
      for (int64_t i = 0; i < samples.calls_per_sample; ++i) call();
    });
    sampled_s += elapsed.wall_s;
    return elapsed;
  };
  if (plan.turns) {
    const double sample_s = fastest_s * double(samples.calls_per_sample);
    // Who has spent its budget keeps the turn until it ends, so that no other takes one beside what it does then.
    while (plan.turns->await() && (samples.ms.empty() || sampled_s < plan.time_budget_s)) {
      if (sample_s < kTurnS) sample();
      Samples turn;
      const auto end_s = sampled_s + kTurnS;
      do turn.add(sample(), samples.calls_per_sample);
      while (sampled_s < end_s);
      add_median(samples, turn);
      plan.turns->pass();
    }
    end_turns(samples);
  }
  StoppingRule rule(plan);
  while (samples.stop_reason.empty()) {
    samples.add(sample(), samples.calls_per_sample);
    samples.stop_reason = rule.reason(samples.ms, sampled_s);
  }
  samples.total_s += sampled_s;
  return samples;
}

Samples take_rounds(const SamplingPlan& plan, const Stopwatch& stopwatch, int64_t steps, const std::function<void()>& begin_round,
                    const std::function<void()>& step, const std::function<void()>& before_sample) {
  Samples samples;
  double elapsed_s = 0;
  StoppingRule rule(plan);
  const auto round = [&](Samples& taken) {
    elapsed_s += time_on_host([&] {
                   begin_round();
                   for (int64_t i = 0; i < steps; ++i) {
                     if (before_sample) before_sample();
                     const auto elapsed = stopwatch(step);
                     taken.add(elapsed, 1);
                     samples.total_s += elapsed.wall_s;
                   }
                 }).wall_s;
  };
  if (plan.turns) {
    while (plan.turns->await() && (samples.ms.empty() || elapsed_s < plan.time_budget_s)) {
      Samples turn;
      round(turn);
      add_median(samples, turn);
      plan.turns->pass();
    }
    end_turns(samples);
  }
  while (samples.stop_reason.empty()) {
    round(samples);
    samples.stop_reason = rule.reason(samples.ms, elapsed_s);
  }
  return samples;
}

}  // namespace attnbench
