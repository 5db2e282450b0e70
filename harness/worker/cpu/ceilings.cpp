#include "harness/worker/cpu/ceilings.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <vector>

#include "harness/worker/cpu/device.h"
#include "harness/worker/cpu/threads.h"
#include "harness/worker/timing.h"

namespace attnbench {
namespace {

// Twelve independent chains keep a core busy: it has two units that each start one multiply-add per cycle, and the next one of
// the same chain can start four to five cycles later. Each accumulator is a variable of its own, because the compiler would spill
// an array of them to the stack.
constexpr int kChains = 12;

#define ATTNBENCH_FMA_CHAINS(function, scalar, bytes, target_attribute)                    \
  target_attribute double function(int64_t rounds) {                                       \
    typedef scalar Vector __attribute__((vector_size(bytes)));                             \
    const Vector m = Vector{} + scalar(0.999), c = Vector{} + scalar(0.001);               \
    Vector a0{}, a1{}, a2{}, a3{}, a4{}, a5{}, a6{}, a7{}, a8{}, a9{}, a10{}, a11{};       \
    for (int64_t i = 0; i < rounds; ++i) {                                                 \
      a0 = a0 * m + c, a1 = a1 * m + c, a2 = a2 * m + c, a3 = a3 * m + c, a4 = a4 * m + c; \
      a5 = a5 * m + c, a6 = a6 * m + c, a7 = a7 * m + c, a8 = a8 * m + c, a9 = a9 * m + c; \
      a10 = a10 * m + c, a11 = a11 * m + c;                                                \
      /* Keeps the compiler from merging rounds or chains. */                              \
      __asm__ volatile("" : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(a4), "+x"(a5));   \
      __asm__ volatile("" : "+x"(a6), "+x"(a7), "+x"(a8), "+x"(a9), "+x"(a10), "+x"(a11)); \
    }                                                                                      \
    const Vector sum = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11;        \
    return double(sum[0]);                                                                 \
  }

#if defined(__x86_64__)
#define ATTNBENCH_AVX512 __attribute__((target("avx512f")))
#define ATTNBENCH_AVX2 __attribute__((target("avx2,fma")))
ATTNBENCH_FMA_CHAINS(fma_float_avx512, float, 64, ATTNBENCH_AVX512)
ATTNBENCH_FMA_CHAINS(fma_double_avx512, double, 64, ATTNBENCH_AVX512)
ATTNBENCH_FMA_CHAINS(fma_float_avx2, float, 32, ATTNBENCH_AVX2)
ATTNBENCH_FMA_CHAINS(fma_double_avx2, double, 32, ATTNBENCH_AVX2)
ATTNBENCH_FMA_CHAINS(fma_float_portable, float, 16, )
ATTNBENCH_FMA_CHAINS(fma_double_portable, double, 16, )

struct FmaKernels {
  double (*float32)(int64_t);
  double (*float64)(int64_t);
  int vector_bytes;
  const char* name;
};

FmaKernels choose_fma() {
  if (__builtin_cpu_supports("avx512f")) return {fma_float_avx512, fma_double_avx512, 64, "avx512"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {fma_float_avx2, fma_double_avx2, 32, "avx2"};
  return {fma_float_portable, fma_double_portable, 16, "portable"};
}
#else
#error "the multiply-add ceilings are written for x86-64"
#endif

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

double fma_gflop_s(int64_t threads, double (*kernel)(int64_t), double lanes) {
  constexpr int64_t rounds = 6'000'000;  // takes about 20 ms
  const auto seconds = best_seconds(threads, [&](int64_t) { sink = kernel(rounds); });
  return double(threads) * double(rounds) * kChains * lanes * 2 / seconds / 1e9;
}

#ifdef __SANITIZE_ADDRESS__
#define ATTNBENCH_READ_CLONES  // AddressSanitizer cannot run the code that selects a clone
#else
#define ATTNBENCH_READ_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

// Sums integers, because the compiler may reorder their sum and so use vector instructions. Prefetches, because the core's
// hardware prefetcher does not read far enough ahead.
ATTNBENCH_READ_CLONES uint64_t read_sum(const uint64_t* data, int64_t count) {
  constexpr int64_t stride = 32, ahead = 512;
  uint64_t sums[stride] = {};
  for (int64_t i = 0; i + stride <= count; i += stride) {
    for (int64_t j = 0; j < stride; j += 8) __builtin_prefetch(data + i + ahead + j);
    for (int64_t j = 0; j < stride; ++j) sums[j] += data[i + j];
  }
  uint64_t sum = 0;
  for (const auto part : sums) sum += part;
  return sum;
}

}  // namespace

Ceilings measure_ceilings(int64_t threads) {
  use_threads(threads);
  Ceilings ceilings;
  ceilings.threads = threads;
  const auto kernels = choose_fma();
  ceilings.fma_instruction_set = kernels.name;
  ceilings.fma_float32_gflop_s = fma_gflop_s(threads, kernels.float32, kernels.vector_bytes / 4.0);
  ceilings.fma_float64_gflop_s = fma_gflop_s(threads, kernels.float64, kernels.vector_bytes / 8.0);

  const auto count = bytes_beyond_caches(int64_t{1} << 27, int64_t{1} << 29) / 8 / threads;
  ceilings.array_bytes = count * threads * 8;
  std::vector<uint64_t> source(size_t(count * threads), 1), target(size_t(count * threads));
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
