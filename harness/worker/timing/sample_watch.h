// SampleWatch tells which samples were taken while something else slowed the machine down. It never looks at the samples' own
// times, so that a method whose time really varies is not made to look steady.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "harness/schema/record.h"
#include "harness/worker/cpu/probe.h"

namespace attnbench {

// What the system counts for this process since it started, and for the whole machine.
struct SystemCounters {
  double processor_s = 0;            // processor time of all threads
  double system_s = 0;               // the part of it that was spent in the system
  std::vector<double> run_delays_s;  // of each thread: how long it was runnable and waited for a processor
  double steal_s = 0;                // of the whole machine: time that the hypervisor gave to others, over all processors
  int64_t involuntary_switches = 0;
  int64_t page_faults = 0;
};

class SampleWatch {
 public:
  // `threads` is the number of threads of the case and of the probe. `best_arithmetic_us` is the best time of the arithmetic
  // probe in earlier processes, or 0. Memory probes are compared only with other memory probes of this process, and those before
  // samples separately from those after samples, because what ran before leaves its data in the caches. A sample counts as
  // disturbed if the machine was slower than at its best by more than `max_share`. `is_throttled` tells whether the device was
  // throttled at the last reading; it may be empty.
  SampleWatch(int64_t threads, double best_arithmetic_us, double max_share, std::function<bool()> is_throttled = {});
  ~SampleWatch();
  SampleWatch(const SampleWatch&) = delete;
  SampleWatch& operator=(const SampleWatch&) = delete;

  // Must be called before the work of one or more samples, and after it with the number of calls and samples. Two such pairs of
  // calls in direct succession share the probe between them. Call pause() if anything ran in between.
  void begin();
  void end(int64_t calls, size_t samples);
  void pause() { probed_ = false; }
  // Does work between begin() and end() that is no part of a call, such as making a decoding state. What the system counts and
  // the time that passes meanwhile are left out.
  void leave_out(const std::function<void()>& work);

  // For each sample: by what share the machine was slower than at its best, the largest share by any of these signs: the probes
  // before and after it, the time that its threads waited for a processor, and the time that the hypervisor took.
  std::vector<double> shares() const;
  double max_share() const { return max_share_; }

  // Sets the columns of the group "disturbance", except those that count samples.
  void set_columns(Record& record) const;

 private:
  class CounterFiles;
  struct Reading {
    ProbeTimes before = {}, after = {};
    size_t samples = 1;  // the number of samples that were taken between these probes
    double waited = 0;   // by what share run delay or stolen time made them longer
    bool throttled = false;
  };
  ProbeTimes probe();

  std::unique_ptr<CounterFiles> files_;
  Probe probe_;
  ProbeTimes last_probe_;
  double given_best_us_;
  int64_t threads_;
  double max_share_;
  std::function<bool()> is_throttled_;
  bool probed_ = false;  // whether last_probe_ was taken right before
  std::chrono::steady_clock::time_point began_at_;
  SystemCounters began_, sum_;
  double processors_;                               // the number of processors of the machine, over which stolen time is summed
  double wall_s_ = 0, run_delay_s_ = 0, load_ = 0;  // run_delay_s_ is that of the thread that waited longest
  int64_t calls_ = 0;
  std::vector<ProbeTimes> probes_;
  std::vector<Reading> readings_;
};

}  // namespace attnbench
