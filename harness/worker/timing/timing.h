// Takes samples of the time of a call, and decides when there are enough of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/worker/timing/sample_watch.h"
#include "harness/worker/timing/turns.h"

namespace attnbench {

struct Elapsed {
  double s;                        // seconds by the device's own clock
  double wall_s;                   // seconds by the host's clock, from before the work is launched until it is done
  bool includes_launches = false;  // whether `s` includes time that the host took to launch the work on another device
};
// Measures how long `work` takes.
using Stopwatch = std::function<Elapsed(const std::function<void()>& work)>;
// The stopwatch for work on the host itself, for which both times are the same.
Elapsed time_on_host(const std::function<void()>& work);

struct SamplingPlan {
  double warmup_s;
  int64_t min_samples;
  double noise_target;           // sampling stops when relative_noise() is at most this
  double time_budget_s;          // for all samples together
  double min_sample_ms;          // a sample makes as many calls as it needs to last this long
  Turns* turns = nullptr;        // if set, each sample is the median of a turn, until the turns end or the time budget is spent
  SampleWatch* watch = nullptr;  // if set, samples that it finds disturbed do not count towards min_samples and noise_target
};

// Decides when there are enough samples. Because this takes sorting them, it decides less often the more samples there are.
class StoppingRule {
 public:
  // The plan must outlive the rule.
  explicit StoppingRule(const SamplingPlan& plan);
  // Whether reason() decides with so many samples; if not, it returns empty text.
  bool decides_at(size_t samples) const { return samples >= next_decision_; }
  // Why sampling stops: "noise_target" or "time_budget"; empty while more samples are needed. `shares` tells how much each sample
  // was disturbed, as in statistics/disturbance.h; disturbed samples do not count.
  std::string reason(const std::vector<double>& samples, const std::vector<double>& shares, double max_share, double elapsed_s);

 private:
  const SamplingPlan& plan_;
  size_t next_decision_;
};

struct Samples {
  std::vector<double> ms;       // time of one call, in the order in which the samples were taken; none is dropped
  std::vector<double> wall_ms;  // the same by the host's clock
  int64_t calls_per_sample = 1;
  int64_t warmup_calls = 0;
  int64_t with_launches = 0;  // the number of samples whose time includes launches
  std::string stop_reason;    // "noise_target", "time_budget" or "turns"
  double total_s = 0;         // time inside calls, warm-up included, by the host's clock

  // Adds a sample that made `calls` calls in this time.
  void add(const Elapsed& elapsed, int64_t calls);
  // Converts samples of calls that each consist of `parts` smaller calls to samples of such a smaller call.
  void divide_calls(int64_t parts);
};

// Warms up, then takes at least min_samples samples, until the noise target is reached or the time budget is spent. Before each
// sample it calls `before_sample`, which is not timed, may for instance flush a cache, and may be empty.
//
// With turns, each turn takes samples for 10 ms, or for a tenth of the time that the others take for theirs (at most 100 ms), or
// a single sample that lasts longer. If samples are shorter than that, the first one of each turn is dropped, because the other
// workers have filled the caches with their data. The first turn of each worker only warms up. Throws std::runtime_error if the
// turns end before the first sample.
Samples take_samples(const SamplingPlan& plan, const Stopwatch& stopwatch, const std::function<void()>& call,
                     const std::function<void()>& before_sample);

// The steps of a round. The first ones are not timed, because the caches are then full of the data of the setup.
struct RoundSteps {
  int64_t warm_up, timed;
};

// Takes samples of steps that change the data that they work on, such as decoding steps, which grow a state. `begin_round` makes
// new data, then `step` is called for each step of the round, and each timed step is a sample. Takes whole rounds, at least one.
// The time budget includes begin_round, which may take longer than the steps.
//
// With turns, a turn takes rounds for 10 ms, or for a tenth of the time that the others take for theirs (at most 100 ms), or a
// single round that lasts longer. The median of the steps of a turn is the sample.
Samples take_rounds(const SamplingPlan& plan, const Stopwatch& stopwatch, const RoundSteps& steps,
                    const std::function<void()>& begin_round, const std::function<void()>& step,
                    const std::function<void()>& before_sample);

// Half the width of the distribution-free 95 % interval of the median (between two order statistics), divided by the median.
// Infinite for fewer than six samples, because even their whole range covers the median with a probability below 95 %.
double relative_noise(std::vector<double> samples);

}  // namespace attnbench
