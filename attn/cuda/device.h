// The parts of CUDA that kernels use, except the tensor cores (mma.h): elements, shared memory, asynchronous copies, sums over
// lanes. In tests without a GPU, the header that ATTN_CUDA_EMULATION names replaces the CUDA toolkit and runs kernels on the CPU.
#pragma once

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include ATTN_CUDA_EMULATION
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

namespace attn::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = ~0u;

// The index of the thread in its block, of its lane in its warp, and of its warp in its block. Blocks are one-dimensional.
__device__ inline int thread() { return int(threadIdx.x); }
__device__ inline int lane() { return int(threadIdx.x) % kWarp; }
__device__ inline int warp() { return int(threadIdx.x) / kWarp; }

// ------------------------------------------------------------ elements

// 16-bit elements, in the form in which tensors store them.
struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

__device__ inline float bits_to_float(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
#endif
}
__device__ inline uint32_t float_to_bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  uint32_t bits;
  memcpy(&bits, &x, sizeof x);
  return bits;
#endif
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(BFloat16 x) { return bits_to_float(uint32_t(x.bits) << 16); }
__device__ inline float to_float(Half x) {
#ifdef __CUDACC__
  return __half2float(__ushort_as_half(x.bits));
#else
  _Float16 half;
  memcpy(&half, &x.bits, sizeof half);
  return float(half);
#endif
}

// Converts to an element type, rounding to nearest, ties to even.
template <class E>
__device__ inline E from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline BFloat16 from_float<BFloat16>(float x) {
#ifdef __CUDACC__
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
  const uint32_t bits = float_to_bits(x);
  if (x != x) return {0x7fff};
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
#endif
}
template <>
__device__ inline Half from_float<Half>(float x) {
#ifdef __CUDACC__
  return {__half_as_ushort(__float2half_rn(x))};
#else
  const auto half = _Float16(x);
  Half result;
  memcpy(&result.bits, &half, sizeof half);
  return result;
#endif
}

// Conversions for kernels whose accumulator dtype may be float64.
__device__ inline double to_float(double x) { return x; }
template <class E, class T>
__device__ inline E from_number(T x) {
  if constexpr (sizeof(E) == 8) return E(x);
  else return from_float<E>(float(x));
}

// ------------------------------------------------------------ memory

// The block's dynamic shared memory, 128-byte aligned.
__device__ inline char* shared_memory() {
#ifdef __CUDACC__
  extern __shared__ __align__(128) char attn_shared[];
  return attn_shared;
#else
  return emulation::shared_bytes();
#endif
}

// Begins to copy 16 bytes from global to shared memory or, if `valid` is false, to write 16 zero bytes. Both addresses are
// 16-byte aligned. The next end_copy_group() closes the group that the copy belongs to. The block may read the bytes after
// wait_for_copies() has waited for that group, followed by a barrier.
__device__ inline void copy_async(void* shared, const void* global, bool valid) {
#ifdef __CUDA_ARCH__
  const auto to = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global), "r"(valid ? 16 : 0) : "memory");
#elif !defined(__CUDACC__)
  emulation::copy_later(shared, valid ? global : nullptr, 16);
#endif
}
__device__ inline void end_copy_group() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#elif !defined(__CUDACC__)
  emulation::end_copy_group();
#endif
}
// Waits until at most kGroups groups of this thread's copies are unfinished.
template <int kGroups>
__device__ inline void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
#elif !defined(__CUDACC__)
  emulation::wait_for_copies(kGroups);
#endif
}

// ------------------------------------------------------------ warps

// The sum and the maximum over each group of `width` neighbouring lanes; every lane gets the result of its group.
template <class T>
__device__ inline T sum_over_lanes(T x, int width = kWarp) {
  for (int bits = width / 2; bits > 0; bits /= 2) x += __shfl_xor_sync(kAllLanes, x, bits);
  return x;
}
__device__ inline float max_over_lanes(float x, int width = kWarp) {
  for (int bits = width / 2; bits > 0; bits /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, bits);
    x = other > x ? other : x;
  }
  return x;
}

}  // namespace attn::cuda
