// Reads Linux's counters of threads and processors and takes probes before and after samples, and computes shares from them.
#include "harness/worker/timing/sample_watch.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "harness/statistics/statistics.h"

namespace attnbench {
namespace {

double seconds(const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) / 1e6; }

// The clock of a processor in MHz, where the system tells it; 0 elsewhere.
double clock_mhz() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq");
  double khz = 0;
  return file >> khz ? khz / 1e3 : 0;
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

SystemCounters& operator+=(SystemCounters& to, const SystemCounters& more) {
  to.processor_s += more.processor_s;
  to.system_s += more.system_s;
  to.steal_s += more.steal_s;
  to.involuntary_switches += more.involuntary_switches;
  to.page_faults += more.page_faults;
  to.run_delays_s.resize(more.run_delays_s.size());
  for (size_t i = 0; i < more.run_delays_s.size(); ++i) to.run_delays_s[i] += more.run_delays_s[i];
  return to;
}

// What was counted from `before` on.
SystemCounters operator-(SystemCounters now, const SystemCounters& before) {
  now.processor_s -= before.processor_s;
  now.system_s -= before.system_s;
  now.steal_s -= before.steal_s;
  now.involuntary_switches -= before.involuntary_switches;
  now.page_faults -= before.page_faults;
  for (size_t i = 0; i < now.run_delays_s.size(); ++i) now.run_delays_s[i] -= before.run_delays_s[i];
  return now;
}

}  // namespace

// Reads the counters. The threads are those that exist when it is made; the threads that compute have been started by then.
class SampleWatch::CounterFiles {
  // A file of /proc that is read again and again.
  class ProcFile {
   public:
    explicit ProcFile(const std::string& path) : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~ProcFile() {
      if (file_ >= 0) close(file_);
    }
    ProcFile(ProcFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    ProcFile(const ProcFile&) = delete;
    ProcFile& operator=(const ProcFile&) = delete;
    ProcFile& operator=(ProcFile&&) = delete;

    // The beginning of the file; empty if it cannot be read.
    std::string text() const {
      char buffer[512];
      const auto count = file_ < 0 ? -1 : pread(file_, buffer, sizeof buffer, 0);
      return count <= 0 ? "" : std::string(buffer, size_t(count));
    }

   private:
    int file_;
  };

 public:
  CounterFiles() : stat_("/proc/stat") {
    std::error_code error;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error))
      threads_.emplace_back(thread.path().string() + "/schedstat");
  }

  SystemCounters read() const {
    SystemCounters counters;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    counters.system_s = seconds(usage.ru_stime);
    counters.processor_s = seconds(usage.ru_utime) + counters.system_s;
    counters.involuntary_switches = usage.ru_nivcsw;
    counters.page_faults = usage.ru_minflt + usage.ru_majflt;
    for (const auto& thread : threads_) {
      double running_ns = 0, delay_ns = 0;
      std::istringstream(thread.text()) >> running_ns >> delay_ns;
      counters.run_delays_s.push_back(delay_ns / 1e9);
    }
    // "cpu", then the times user, nice, system, idle, iowait, irq, softirq and steal
    std::istringstream text(stat_.text());
    std::string word;
    double ticks[8] = {};
    if (text >> word)
      for (auto& tick : ticks) text >> tick;
    counters.steal_s = ticks[7] / double(sysconf(_SC_CLK_TCK));
    return counters;
  }

 private:
  ProcFile stat_;
  std::vector<ProcFile> threads_;
};

SampleWatch::SampleWatch(int64_t threads, double best_arithmetic_us, double max_share, std::function<bool()> is_throttled)
    : probe_(threads),
      given_best_us_(best_arithmetic_us),
      threads_(threads),
      max_share_(max_share),
      is_throttled_(std::move(is_throttled)),
      processors_(double(sysconf(_SC_NPROCESSORS_ONLN))),
      load_(load_average()) {
  probe_.take();  // The first probe is slower, because it loads its data and starts the threads.
  files_ = std::make_unique<CounterFiles>();
}

SampleWatch::~SampleWatch() = default;

ProbeTimes SampleWatch::probe() {
  last_probe_ = probe_.take();
  probed_ = true;
  return last_probe_;
}

void SampleWatch::begin() {
  if (!probed_) probes_.push_back(probe());
  readings_.push_back({.before = last_probe_});
  began_ = files_->read();
  began_at_ = std::chrono::steady_clock::now();
}

void SampleWatch::leave_out(const std::function<void()>& work) {
  const auto before = files_->read();
  const auto before_at = std::chrono::steady_clock::now();
  work();
  began_at_ += std::chrono::steady_clock::now() - before_at;
  began_ += files_->read() - before;
}

void SampleWatch::end(int64_t calls, size_t samples) {
  const auto wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_at_).count();
  const auto spent = files_->read() - began_;
  auto& reading = readings_.back();
  reading.after = probe();
  probes_.push_back(reading.after);
  reading.samples = samples;
  reading.throttled = is_throttled_ && is_throttled_();
  sum_ += spent;
  // The threads wait for each other, so the one that waited longest for a processor delays the work.
  double delay_s = 0;
  for (const auto of_thread : spent.run_delays_s) delay_s = std::max(delay_s, of_thread);
  run_delay_s_ += delay_s;
  // A delay of a quarter of the wall time means that the work took a third longer than it would have without the delay. Stolen
  // time is counted in steps of 10 ms, so a single step in a short sample tells little.
  const auto longer = [&](double lost_s) { return lost_s / std::max(wall_s - lost_s, wall_s / 100); };
  reading.waited = longer(delay_s);
  if (spent.steal_s > 0.01 || wall_s > 0.1) reading.waited = std::max(reading.waited, longer(spent.steal_s / processors_));
  wall_s_ += wall_s;
  calls_ += calls;
}

std::vector<double> SampleWatch::shares() const {
  std::vector<ProbeTimes> before, after;
  for (const auto& reading : readings_) {
    before.push_back(reading.before);
    after.push_back(reading.after);
  }
  auto best_us = best_of(probes_).arithmetic_us;
  if (given_best_us_ > 0) best_us = std::min(best_us, given_best_us_);
  const auto slower = [&](const ProbeTimes& probe, const ProbeTimes& best) {
    return std::max(probe.arithmetic_us / best_us, probe.memory_us / best.memory_us) - 1;
  };
  const auto best_before = best_of(before), best_after = best_of(after);
  std::vector<double> shares;
  for (const auto& reading : readings_) {
    const auto by_probe = std::max({0.0, slower(reading.before, best_before), slower(reading.after, best_after)});
    shares.insert(shares.end(), reading.samples, std::max({by_probe, reading.waited, reading.throttled ? 1.0 : 0.0}));
  }
  return shares;
}

void SampleWatch::set_columns(Record& record) const {
  if (readings_.empty()) return;
  const auto median_of = [&](double ProbeTimes::*time) {
    std::vector<double> times;
    for (const auto& probe : probes_) times.push_back(probe.*time);
    return median(std::move(times));
  };
  const auto best_probe = best_of(probes_);
  record.set("probe_arithmetic_us", median_of(&ProbeTimes::arithmetic_us));
  record.set("probe_memory_us", median_of(&ProbeTimes::memory_us));
  record.set("probe_best_arithmetic_us", best_probe.arithmetic_us);
  record.set("probe_best_memory_us", best_probe.memory_us);
  record.set("processor_share", sum_.processor_s / wall_s_ / double(threads_));
  if (sum_.processor_s > 0) record.set("system_share", sum_.system_s / sum_.processor_s);
  record.set("run_delay_share", run_delay_s_ / wall_s_);
  record.set("steal_share", sum_.steal_s / wall_s_ / processors_);
  record.set("involuntary_switches", sum_.involuntary_switches);
  record.set("page_faults_per_call", double(sum_.page_faults) / double(std::max<int64_t>(1, calls_)));
  record.set("load", load_);
  if (const auto mhz = clock_mhz(); mhz > 0) record.set("cpu_clock_mhz", mhz);
}

}  // namespace attnbench
