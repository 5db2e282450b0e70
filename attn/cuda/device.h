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

// Returns x, of which the compiler then knows nothing. Called in a loop, it keeps the compiler from computing what follows from x
// before the loop, and from spilling it.
__device__ inline int opaque(int x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// ------------------------------------------------------------ elements

// 16-bit elements, in the form in which tensors store them.
struct BFloat16 {
  static constexpr bool kIsBFloat16 = true;
  uint16_t bits;
};
struct Half {
  static constexpr bool kIsBFloat16 = false;
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
// Two numbers, converted to 16-bit elements in one word; the first one is in the lower half.
template <class E>
__device__ inline uint32_t pair_of(float first, float second);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline BFloat16 from_float<BFloat16>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return {uint16_t(pair_of<BFloat16>(x, 0))};  // converting two numbers takes fewer cycles than converting a single one
#elif defined(__CUDACC__)
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

template <class E>
__device__ inline uint32_t pair_of(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t word;
  if constexpr (sizeof(E) == 2 && E::kIsBFloat16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(second), "f"(first));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  return uint32_t(from_float<E>(first).bits) | uint32_t(from_float<E>(second).bits) << 16;
#endif
}

// The numbers of two 16-bit elements in one word.
template <class E>
__device__ inline float first_of_pair(uint32_t word) {
  if constexpr (E::kIsBFloat16) return bits_to_float(word << 16);
  else return to_float(E{uint16_t(word)});
}
template <class E>
__device__ inline float second_of_pair(uint32_t word) {
  if constexpr (E::kIsBFloat16) return bits_to_float(word & 0xffff0000);
  else return to_float(E{uint16_t(word >> 16)});
}

// Conversions for kernels whose accumulator dtype may be float64.
__device__ inline double to_float(double x) { return x; }
template <class E, class T>
__device__ inline E from_number(T x) {
  if constexpr (sizeof(E) == 8) return E(x);
  else return from_float<E>(float(x));
}

// ------------------------------------------------------------ arithmetic

// The smaller and the larger of two numbers; NaN if one of them is NaN.
__device__ inline float min_or_nan(float a, float b) {
#ifdef __CUDA_ARCH__
  float result;
  asm("min.NaN.f32 %0, %1, %2;\n" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a || a < b ? a : b;
#endif
}
__device__ inline float max_or_nan(float a, float b) {
#ifdef __CUDA_ARCH__
  float result;
  asm("max.NaN.f32 %0, %1, %2;\n" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a || a > b ? a : b;
#endif
}
// 2^x, with an error of two units in the last place; results below 2⁻¹²⁶ become zeros.
__device__ inline float fast_exp2(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}
// eˣ, with an error of a few units in the last place if x is near 0; results below 2⁻¹²⁶ become zeros.
constexpr float kLog2OfE = 1.4426950f;
__device__ inline float fast_exp(float x) { return fast_exp2(x * kLog2OfE); }
// Functions of two bfloat16 numbers in one word. Results are rounded once.
constexpr uint32_t kOnes = 0x3f803f80, kMinusOnes = 0xbf80bf80, kMinusZeros = 0x80008000;
// The smaller and the larger numbers of two pairs; NaN if one of two numbers is NaN.
__device__ inline uint32_t min_of_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t result;
  asm("min.NaN.bf16x2 %0, %1, %2;\n" : "=r"(result) : "r"(a), "r"(b));
  return result;
#else
  return pair_of<BFloat16>(min_or_nan(first_of_pair<BFloat16>(a), first_of_pair<BFloat16>(b)),
                           min_or_nan(second_of_pair<BFloat16>(a), second_of_pair<BFloat16>(b)));
#endif
}
__device__ inline uint32_t max_of_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t result;
  asm("max.NaN.bf16x2 %0, %1, %2;\n" : "=r"(result) : "r"(a), "r"(b));
  return result;
#else
  return pair_of<BFloat16>(max_or_nan(first_of_pair<BFloat16>(a), first_of_pair<BFloat16>(b)),
                           max_or_nan(second_of_pair<BFloat16>(a), second_of_pair<BFloat16>(b)));
#endif
}
// a · b + c
__device__ inline uint32_t multiply_add_pairs(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
#else
  return pair_of<BFloat16>(fmaf(first_of_pair<BFloat16>(a), first_of_pair<BFloat16>(b), first_of_pair<BFloat16>(c)),
                           fmaf(second_of_pair<BFloat16>(a), second_of_pair<BFloat16>(b), second_of_pair<BFloat16>(c)));
#endif
}
__device__ inline uint32_t add_pairs(uint32_t a, uint32_t b) { return multiply_add_pairs(a, kOnes, b); }
__device__ inline uint32_t multiply_pairs(uint32_t a, uint32_t b) { return multiply_add_pairs(a, b, kMinusZeros); }
// a − b
__device__ inline uint32_t subtract_pairs(uint32_t a, uint32_t b) { return multiply_add_pairs(b, kMinusOnes, a); }
// 1/x, with an error of one unit in the last place. Numbers and results below 2⁻¹²⁶ count as zeros.
__device__ inline float fast_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
#else
  return 1 / x;
#endif
}

// 1/√x, with an error of two units in the last place. Numbers below 2⁻¹²⁶ count as zeros.
__device__ inline float fast_rsqrt(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
#else
  return 1 / sqrtf(x);
#endif
}

// ------------------------------------------------------------ memory

// address + count · bytes, in one instruction.
__device__ inline uintptr_t advance(uintptr_t address, int count, int bytes) {
#ifdef __CUDA_ARCH__
  asm("mad.wide.s32 %0, %1, %2, %0;\n" : "+l"(address) : "r"(count), "r"(bytes));
  return address;
#else
  return address + uintptr_t(int64_t(count) * bytes);
#endif
}
// A pointer to global memory, of which the compiler then knows that it is one.
template <class T>
__device__ inline T* global_pointer(uintptr_t address) {
#ifdef __CUDA_ARCH__
  return static_cast<T*>(__cvta_global_to_generic(address));
#else
  return reinterpret_cast<T*>(address);
#endif
}

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
// Waits until the kernel that was launched on the stream before this one has ended, and lets the next one begin. A kernel that is
// launched with Begin::early (launch.cuh) may begin before the other has ended: each of its threads must call this before it
// accesses global memory.
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#elif !defined(__CUDACC__)
  emulation::wait_for_previous_kernel();
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
