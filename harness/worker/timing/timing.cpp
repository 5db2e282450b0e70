// Takes samples until the stopping rule has enough, alone or in turns.
#include "harness/worker/timing/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "harness/statistics/disturbance.h"
#include "harness/statistics/statistics.h"

namespace attnbench {

Elapsed time_on_host(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {seconds, seconds};
}

double relative_noise(std::vector<double> samples) {
  const auto n = double(samples.size());
  if (samples.size() < kMinValuesOfInterval) return std::numeric_limits<double>::infinity();
  std::sort(samples.begin(), samples.end());
  // The number of samples below the true median has a binomial distribution. The ranks come from its normal approximation.
  const auto half_width = 1.96 * std::sqrt(n) / 2;
  const auto low = size_t(std::max(0.0, std::floor(n / 2 - half_width)));
  const auto high = std::min(samples.size() - 1, size_t(std::ceil(n / 2 + half_width)));
  return (samples[high] - samples[low]) / 2 / samples[samples.size() / 2];
}

void Samples::add(const Elapsed& elapsed, int64_t calls) {
  ms.push_back(elapsed.s * 1e3 / double(calls));
  wall_ms.push_back(elapsed.wall_s * 1e3 / double(calls));
  with_launches += elapsed.includes_launches ? 1 : 0;
}

void Samples::divide_calls(int64_t parts) {
  for (auto* times : {&ms, &wall_ms})
    for (auto& time : *times) time /= double(parts);
  calls_per_sample *= parts;
  warmup_calls *= parts;
}

StoppingRule::StoppingRule(const SamplingPlan& plan) : plan_(plan), next_decision_(size_t(plan.min_samples)) {}

std::string StoppingRule::reason(const std::vector<double>& samples, const std::vector<double>& shares, double max_share,
                                 double elapsed_s) {
  if (!decides_at(samples.size())) return "";
  next_decision_ += 1 + next_decision_ / 10;
  const auto kept = undisturbed(samples, shares, max_share);
  if (kept.size() >= size_t(plan_.min_samples) && relative_noise(kept) <= plan_.noise_target) return "noise_target";
  return elapsed_s >= plan_.time_budget_s ? "time_budget" : "";
}

namespace {

// The stop reason of the samples so far; empty while more are needed.
std::string stop_reason(StoppingRule& rule, const SamplingPlan& plan, const Samples& samples, double elapsed_s) {
  if (!rule.decides_at(samples.ms.size())) return "";  // the shares of all samples take longer to compute than a short sample
  if (!plan.watch) return rule.reason(samples.ms, {}, 0, elapsed_s);
  return rule.reason(samples.ms, plan.watch->shares(), plan.watch->max_share(), elapsed_s);
}

// The length of a turn: at least 10 ms, and a tenth of the time that the others take for theirs, so that a short call is measured
// about as precisely as the long one beside it.
constexpr double kMinTurnS = 0.01, kMaxTurnS = 0.1, kShareOfWait = 0.1;
double turn_length_s(double waited_s) { return std::clamp(kShareOfWait * waited_s, kMinTurnS, kMaxTurnS); }

// Adds the median of a turn's samples to `samples`, as one sample.
void add_median(Samples& samples, const Samples& turn) {
  samples.ms.push_back(median(turn.ms));
  samples.wall_ms.push_back(median(turn.wall_ms));
  samples.with_launches += turn.with_launches > 0 ? 1 : 0;
}

// Takes the samples of one turn, which should last `length_s`.
using TakeTurn = std::function<void(Samples& turn, double length_s, SampleWatch* watch)>;

// Calls `take_turn` in each turn, and adds the median of its samples. The first turn only warms up, since the threads have slept
// and the other workers have filled the caches; all workers leave it out, so that their samples stay in pairs. Ends when the
// turns end, or when `spent_s`, which `take_turn` increases, has grown by the time budget after min_samples turns. A worker that
// has spent its budget does not pass the turn on. The turns of the others end when it ends, so that they take no samples while it
// does its remaining work.
void sample_in_turns(const SamplingPlan& plan, const double& spent_s, const TakeTurn& take_turn, Samples& samples) {
  double before_s = 0;
  for (bool warms_up = true;; warms_up = false) {
    bool has_turn = false;
    const auto waited_s = time_on_host([&] { has_turn = plan.turns->await(); }).s;
    const bool has_enough = int64_t(samples.ms.size()) >= std::max<int64_t>(1, plan.min_samples);
    if (!has_turn || (has_enough && spent_s - before_s >= plan.time_budget_s)) break;
    Samples turn;
    if (plan.watch) plan.watch->pause();
    take_turn(turn, warms_up ? 0 : turn_length_s(waited_s), warms_up ? nullptr : plan.watch);
    if (warms_up) before_s = spent_s;
    else add_median(samples, turn);
    plan.turns->pass();
  }
  if (samples.ms.empty()) throw std::runtime_error("a process that this one takes turns with has ended before the first sample");
  samples.stop_reason = "turns";
}

// Runs `work`, which makes `calls` calls in `samples` samples, between the begin() and the end() of the watch, if there is one.
void watched(SampleWatch* watch, int64_t calls, size_t samples, const std::function<void()>& work) {
  if (watch) watch->begin();
  work();
  if (watch) watch->end(calls, samples);
}

// Makes at least one call, and more until the warm-up time has passed. Returns the seconds of the fastest call.
double warm_up(const SamplingPlan& plan, const Stopwatch& stopwatch, const std::function<void()>& call, Samples& samples) {
  double fastest_s = std::numeric_limits<double>::infinity();
  while (samples.warmup_calls == 0 || samples.total_s < plan.warmup_s) {
    const auto elapsed = stopwatch(call);
    fastest_s = std::min(fastest_s, elapsed.s);
    samples.total_s += elapsed.wall_s;
    ++samples.warmup_calls;
  }
  return fastest_s;
}

}  // namespace

Samples take_samples(const SamplingPlan& plan, const Stopwatch& stopwatch, const std::function<void()>& call,
                     const std::function<void()>& before_sample) {
  Samples samples;
  const double fastest_s = warm_up(plan, stopwatch, call, samples);
  if (plan.watch) plan.watch->pause();
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
    const auto sample_s = fastest_s * double(samples.calls_per_sample);
    const auto take_turn = [&](Samples& turn, double length_s, SampleWatch* watch) {
      // The sample that warms up comes after the watch's probe as well, which also uses the caches.
      if (watch) watch->begin();
      if (sample_s < kMinTurnS) sample();
      const auto begin_s = sampled_s;
      do turn.add(sample(), samples.calls_per_sample);
      while (sampled_s < begin_s + std::max(kMinTurnS, length_s));
      if (watch) watch->end(int64_t(turn.ms.size()) * samples.calls_per_sample, 1);
    };
    sample_in_turns(plan, sampled_s, take_turn, samples);
  }
  StoppingRule rule(plan);
  while (samples.stop_reason.empty()) {
    watched(plan.watch, samples.calls_per_sample, 1, [&] { samples.add(sample(), samples.calls_per_sample); });
    samples.stop_reason = stop_reason(rule, plan, samples, sampled_s);
  }
  samples.total_s += sampled_s;
  return samples;
}

Samples take_rounds(const SamplingPlan& plan, const Stopwatch& stopwatch, const RoundSteps& steps,
                    const std::function<void()>& begin_round, const std::function<void()>& step,
                    const std::function<void()>& before_sample) {
  Samples samples;
  double spent_s = 0;
  const auto set_up = [&](SampleWatch* watch) {
    const auto work = [&] { spent_s += time_on_host(begin_round).wall_s; };
    if (watch) watch->leave_out(work);
    else work();
  };
  // The steps that warm up come after the watch's probe as well, which also uses the caches.
  const auto take_steps = [&](Samples& taken) {
    spent_s += time_on_host([&] {
                 for (int64_t i = 0; i < steps.warm_up; ++i) samples.total_s += stopwatch(step).wall_s;
                 for (int64_t i = 0; i < steps.timed; ++i) {
                   if (before_sample) before_sample();
                   const auto elapsed = stopwatch(step);
                   taken.add(elapsed, 1);
                   samples.total_s += elapsed.wall_s;
                 }
                 samples.warmup_calls += steps.warm_up;
               }).wall_s;
  };
  if (plan.turns) {
    const auto take_turn = [&](Samples& turn, double length_s, SampleWatch* watch) {
      const auto begin_s = spent_s;
      if (watch) watch->begin();
      do {
        set_up(watch);
        take_steps(turn);
      } while (spent_s < begin_s + std::max(kMinTurnS, length_s));
      if (watch) watch->end((steps.warm_up + steps.timed) * int64_t(turn.ms.size()) / steps.timed, 1);
    };
    sample_in_turns(plan, spent_s, take_turn, samples);
  }
  StoppingRule rule(plan);
  while (samples.stop_reason.empty()) {
    watched(plan.watch, steps.warm_up + steps.timed, size_t(steps.timed), [&] {
      set_up(plan.watch);
      take_steps(samples);
    });
    samples.stop_reason = stop_reason(rule, plan, samples, spent_s);
  }
  return samples;
}

}  // namespace attnbench
