// Takes samples of a call's time, and decides when there are enough.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/worker/turns.h"

namespace attnbench {

struct Elapsed {
  double s;       // by the device's own clock
  double wall_s;  // by the host's, from before the work is given to the device until it is done
};
// Says how long `work` takes.
using Stopwatch = std::function<Elapsed(const std::function<void()>& work)>;
// Of work on the host itself.
Elapsed time_on_host(const std::function<void()>& work);

struct SamplingPlan {
  double warmup_s;
  int64_t min_samples;
  double noise_target;     // half width of the median's 95 % interval over the median
  double time_budget_s;    // of all samples together
  double min_sample_ms;    // a sample makes as many calls as it needs to last this long
  Turns* turns = nullptr;  // if set, samples are the medians of turns, until these end or the time budget is spent
};

struct Samples {
  std::vector<double> ms;       // a call, in the order taken; none is dropped
  std::vector<double> wall_ms;  // likewise, by the host's clock
  int64_t calls_per_sample = 1;
  int64_t warmup_calls = 0;
  std::string stop_reason;  // "noise_target", "time_budget" or "turns"
  double total_s = 0;       // inside calls, warm-up included, by the host's clock

  void add(const Elapsed& elapsed, int64_t calls);
  // What was taken for a call was `parts` of them, one after another.
  void divide_calls(int64_t parts);
};

// `before_sample` runs untimed before each sample (a cache flush), and may be empty. A turn makes samples for
// 10 ms, or one that lasts longer; before those of less than that comes one that is not counted, as the caches hold what others
// left. Throws std::runtime_error where no turn was had.
Samples take_samples(const SamplingPlan& plan, const Stopwatch& stopwatch, const std::function<void()>& call,
                     const std::function<void()>& before_sample);

// For steps that change what they work on, such as tokens decoded one after another: `begin_round` makes it anew, and each of the
// `steps` that follow is a sample of its own; with turns, a round is one. Whole rounds, one at least. Nothing is warmed up. The
// time budget is of all that a round does, as beginning one may take longer than its steps.
Samples take_rounds(const SamplingPlan& plan, const Stopwatch& stopwatch, int64_t steps, const std::function<void()>& begin_round,
                    const std::function<void()>& step, const std::function<void()>& before_sample);

// The call, and after it so many percent of its time wasted on this thread.
std::function<void()> slowed_down(std::function<void()> call, double percent);

// Half width of the distribution-free 95 % interval of the median (between order statistics), over the median. Infinite
// for fewer than six samples, whose range covers less than that.
double relative_noise(std::vector<double> samples);

}  // namespace attnbench
