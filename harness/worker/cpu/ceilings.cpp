// Times multiply-adds, reading and copying on all threads at once.
#include "harness/worker/cpu/ceilings.h"

#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

#include "harness/worker/cpu/device.h"
#include "harness/worker/cpu/fixed_work.h"
#include "harness/worker/cpu/threads.h"
#include "harness/worker/timing/timing.h"

namespace attnbench {
namespace {

std::atomic<double> sink;  // stores the results, so that the compiler cannot drop the work

// The seconds of the fastest of five runs, each of which calls work(thread) on all threads at once.
double best_seconds(int64_t threads, const std::function<void(int64_t)>& work) {
  double best = 1e300;
  for (int run = 0; run < 5; ++run)
    best = std::min(best, time_on_host([&] {
                            at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
                              for (int64_t thread = begin; thread < end; ++thread) work(thread);
                            });
                          }).s);
  return best;
}

// An array of ones in pages of 2 MiB, where the system has them: with small pages, a stream is limited by the look-up of
// addresses.
class LargePages {
 public:
  explicit LargePages(int64_t count)
      : bytes_(size_t(count) * sizeof(uint64_t)),
        data_(static_cast<uint64_t*>(std::aligned_alloc(kPage, (bytes_ + kPage - 1) / kPage * kPage))) {
    if (!data_) throw std::bad_alloc();
    madvise(data_.get(), bytes_, MADV_HUGEPAGE);
    std::fill_n(data_.get(), count, 1);
  }
  uint64_t* data() const { return data_.get(); }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  struct Free {
    void operator()(uint64_t* data) const { std::free(data); }
  };
  size_t bytes_;
  std::unique_ptr<uint64_t, Free> data_;
};

double fma_gflop_s(int64_t threads, double (*kernel)(int64_t), double lanes) {
  constexpr int64_t rounds = 6'000'000;  // takes about 20 ms
  const auto seconds = best_seconds(threads, [&](int64_t) { sink = kernel(rounds); });
  return double(threads) * double(rounds) * kFmaChains * lanes * 2 / seconds / 1e9;
}

}  // namespace

Ceilings measure_ceilings(int64_t threads) {
  use_threads(threads);
  Ceilings ceilings;
  ceilings.threads = threads;
  const auto& kernels = fma_kernels();
  ceilings.fma_instruction_set = kernels.name;
  ceilings.fma_float32_gflop_s = fma_gflop_s(threads, kernels.float32, kernels.vector_bytes / 4.0);
  ceilings.fma_float64_gflop_s = fma_gflop_s(threads, kernels.float64, kernels.vector_bytes / 8.0);
  if (const auto* avx2 = fma_kernels_avx2())
    ceilings.fma_float32_avx2_gflop_s = fma_gflop_s(threads, avx2->float32, avx2->vector_bytes / 4.0);

  const auto count = bytes_beyond_caches(int64_t{1} << 27, int64_t{1} << 29) / 8 / threads;
  ceilings.array_bytes = count * threads * 8;
  const LargePages source(count * threads), target(count * threads);
  const auto* const from = source.data();
  auto* const to = target.data();
  const auto read_s = best_seconds(threads, [&](int64_t thread) { sink = double(read_sum(from + thread * count, count)); });
  const auto copy_s =
      best_seconds(threads, [&](int64_t thread) { std::copy_n(from + thread * count, count, to + thread * count); });
  ceilings.read_gb_s = double(ceilings.array_bytes) / read_s / 1e9;
  ceilings.copy_gb_s = 2 * double(ceilings.array_bytes) / copy_s / 1e9;
  return ceilings;
}

}  // namespace attnbench
