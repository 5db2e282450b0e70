// Repeats multiply-adds and reading on all processors, and records the times as the samples of a case.
#include "harness/worker/timing/noise.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <vector>

#include "harness/machine/machine.h"
#include "harness/worker/cpu/fixed_work.h"
#include "harness/worker/cpu/threads.h"
#include "harness/worker/timing/sample_watch.h"
#include "harness/worker/timing/timing.h"

namespace attnbench {
namespace {

constexpr int64_t kFmaRounds = 300'000;
constexpr int64_t kReadCount = (8 << 20) / 8;  // 8 MiB for each thread

std::atomic<double> sink;  // stores the results, so that the compiler cannot drop the work

}  // namespace

Record measure_noise(double seconds) {
  const auto threads = available_processors();
  use_threads(threads);
  std::vector<uint64_t> data(size_t(kReadCount * threads), 1);
  const auto work = [&] {
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t thread = begin; thread < end; ++thread) {
        sink = fma_kernels().float32(kFmaRounds);
        sink = double(read_sum(data.data() + thread * kReadCount, kReadCount));
      }
    });
  };
  work();
  const auto max_share = Case().max_disturbance;
  SampleWatch watch(threads, 0, max_share);
  std::vector<double> samples_ms;
  double spent_s = 0;
  while (spent_s < seconds || samples_ms.size() < 10) {
    spent_s += time_on_host([&] {
                 watch.begin();
                 const auto elapsed = time_on_host(work);
                 watch.end(1, 1);
                 samples_ms.push_back(elapsed.s * 1e3);
               }).s;
  }
  Record record;
  record.set("max_disturbance", max_share);
  record.set("threads", threads);
  record.set("time_samples_ms", samples_ms);
  record.set("sample_disturbances", watch.shares());
  watch.set_columns(record);
  return record;
}

}  // namespace attnbench
