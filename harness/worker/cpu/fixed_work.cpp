// Chooses the multiply-adds of the widest vectors that the processor has, and reads memory with prefetches.
#include "harness/worker/cpu/fixed_work.h"

namespace attnbench {
namespace {

// Twelve independent chains (kFmaChains) keep a core busy: it has two units that each start one multiply-add per cycle, and the
// next one of the same chain can start four to five cycles later. Each accumulator is a variable of its own, because the compiler
// would spill an array of them to the stack.
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

constexpr FmaKernels kFmaAvx2 = {fma_float_avx2, fma_double_avx2, 32, "avx2"};

FmaKernels choose_fma() {
  if (__builtin_cpu_supports("avx512f")) return {fma_float_avx512, fma_double_avx512, 64, "avx512"};
  if (const auto* avx2 = fma_kernels_avx2()) return *avx2;
  return {fma_float_portable, fma_double_portable, 16, "portable"};
}
#else
#error "the multiply-add ceilings are written for x86-64"
#endif

#ifdef __SANITIZE_ADDRESS__
#define ATTNBENCH_READ_CLONES  // AddressSanitizer cannot run the code that selects a clone
#else
#define ATTNBENCH_READ_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

// Sums integers, because the compiler may reorder their sum and so use vector instructions. Reads the two halves side by side,
// because a core's hardware prefetcher follows each of them, and prefetches, because it does not look far enough ahead.
ATTNBENCH_READ_CLONES uint64_t sum_of(const uint64_t* data, int64_t count) {
  constexpr int64_t stride = 16, ahead = 128;
  const auto half = count / 2;
  uint64_t sums[2][stride] = {};
  for (int64_t i = 0; i + stride <= half; i += stride)
    for (int64_t side = 0; side < 2; ++side) {
      const auto* from = data + side * half + i;
      for (int64_t j = 0; j < stride; j += 8) __builtin_prefetch(from + ahead + j);
      for (int64_t j = 0; j < stride; ++j) sums[side][j] += from[j];
    }
  uint64_t sum = 0;
  for (const auto& side : sums)
    for (const auto part : side) sum += part;
  return sum;
}

}  // namespace

const FmaKernels* fma_kernels_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kFmaAvx2 : nullptr;
}

const FmaKernels& fma_kernels() {
  static const auto chosen = choose_fma();
  return chosen;
}

double narrow_fma(int64_t rounds) { return fma_float_portable(rounds); }

uint64_t read_sum(const uint64_t* data, int64_t count) { return sum_of(data, count); }

}  // namespace attnbench
