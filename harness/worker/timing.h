// Takes samples of a call's time, and decides when there are enough of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/worker/turns.h"

namespace attnbench {

struct Elapsed {
  double s;       // by the device's own clock
  double wall_s;  // by the host's clock, from before the work is given to the device until it is done
};
// Measures how long `work` takes.
using Stopwatch = std::function<Elapsed(const std::function<void()>& work)>;
// The stopwatch of work on the host itself, where both times are the same.
Elapsed time_on_host(const std::function<void()>& work);

struct SamplingPlan {
  double warmup_s;
  int64_t min_samples;
  double noise_target;     // half width of the median's 95 % interval over the median
  double time_budget_s;    // of all samples together
  double min_sample_ms;    // a sample makes as many calls as it needs to last this long
  Turns* turns = nullptr;  // if set, each sample is the median of a turn, until the turns end or the time budget is spent
};

struct Samples {
  std::vector<double> ms;       // time of one call, in the order in which the samples were taken; none is dropped
  std::vector<double> wall_ms;  // the same by the host's clock
  int64_t calls_per_sample = 1;
  int64_t warmup_calls = 0;
  std::string stop_reason;  // "noise_target", "time_budget" or "turns"
  double total_s = 0;       // time inside calls, warm-up included, by the host's clock

  // Adds a sample of `calls` calls.
  void add(const Elapsed& elapsed, int64_t calls);
  // For samples of calls that each consist of `parts` calls: makes them samples of one such part.
  void divide_calls(int64_t parts);
};

// Warms up, then takes samples until the noise target is reached or the time budget is spent, and at least min_samples of them.
// `before_sample` runs untimed before each sample (to flush a cache, say), and may be empty.
//
// With turns, a turn takes samples for 10 ms, or one that lasts longer. In a turn of short samples the first is dropped, as the
// caches hold what the other workers left there. Throws std::runtime_error if not a single turn was had.
Samples take_samples(const SamplingPlan& plan, const Stopwatch& stopwatch, const std::function<void()>& call,
                     const std::function<void()>& before_sample);

// Takes samples of steps that change what they work on, such as tokens decoded one after another. `begin_round` makes that anew,
// and each of the `steps` that follow is a sample; with turns, a turn is a round. Takes whole rounds, one at least, and warms
// nothing up. The time budget includes begin_round, which may take longer than the steps.
Samples take_rounds(const SamplingPlan& plan, const Stopwatch& stopwatch, int64_t steps, const std::function<void()>& begin_round,
                    const std::function<void()>& step, const std::function<void()>& before_sample);

// Half width of the distribution-free 95 % interval of the median (between two order statistics), over the median. Infinite for
// fewer than six samples, whose whole range covers the median with less than 95 %.
double relative_noise(std::vector<double> samples);

}  // namespace attnbench
