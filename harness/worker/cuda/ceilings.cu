// Measures a GPU's bandwidth and its arithmetic rate outside the tensor cores:
//
//   copy   copies an array of 1 GiB or a quarter of the free memory, whichever is less; counts bytes read plus bytes written
//   fma    runs eight independent chains of float32 multiply-adds in the registers of each thread; counts two operations each
//
// Both work on random data, because a GPU needs less power for zeros and then runs at higher clocks. Each result is that of the
// fastest of kRuns launches.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "harness/worker/cuda/ceilings.h"

namespace attnbench {
namespace {

constexpr int kRuns = 10;
constexpr int kThreads = 256;
constexpr int kChains = 8;
constexpr int kRounds = 4096;

__global__ void copy_kernel(const float4* __restrict__ from, float4* __restrict__ to, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = from[i];
}

// A random number of 32 bits for each index: the finaliser of MurmurHash3.
__device__ uint32_t random_bits(uint32_t index) {
  index ^= index >> 16;
  index *= 0x85ebca6bu;
  index ^= index >> 13;
  index *= 0xc2b2ae35u;
  return index ^ (index >> 16);
}
__device__ float random_unit(uint32_t index) { return float(random_bits(index) >> 8) / float(1 << 24); }

__global__ void fill_kernel(uint32_t* to, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = random_bits(uint32_t(i));
}

// Each chain follows x -> c - x², which stays between -2 and 2 and takes another value in each step.
__global__ void fma_kernel(float* sink) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const float c_of_thread = 1.75f + 0.2f * random_unit(thread);
  float chain[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) chain[c] = random_unit(thread * kChains + c);
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) chain[c] = fmaf(-chain[c], chain[c], c_of_thread);
  }
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += chain[c];
  // This is never true, but the compiler cannot know that, so it must compute the chains.
  if (sum == -100.0f) *sink = sum;
}

// Seconds of the fastest of kRuns launches, or a negative number after an error. The first launch, which loads the kernel, does
// not count.
double best_seconds(const TimeLaunch& time, const std::function<void()>& launch) {
  time(launch);
  double best = -1;
  for (int run = 0; run < kRuns; ++run) {
    const auto seconds = time(launch);
    if (cudaPeekAtLastError() != cudaSuccess) return -1;
    best = best < 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

}  // namespace

const char* measure_copy_and_fma(GpuCeilings& ceilings, const TimeLaunch& time) {
  cudaDeviceProp device{};
  if (const auto error = cudaGetDeviceProperties(&device, 0); error != cudaSuccess) return cudaGetErrorString(error);
  std::copy_n(device.name, sizeof ceilings.name - 1, ceilings.name);
  cudaDriverGetVersion(&ceilings.driver_version);
  cudaRuntimeGetVersion(&ceilings.runtime_version);
  ceilings.memory_bytes = int64_t(device.totalGlobalMem);

  size_t free_bytes = 0, total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  const auto array_bytes = std::min<size_t>(size_t{1} << 30, free_bytes / 4) / sizeof(float4) * sizeof(float4);
  float4 *from = nullptr, *to = nullptr;
  const int blocks = 8 * device.multiProcessorCount;
  double copy_s = -1, fma_s = -1;
  if (cudaMalloc(&from, array_bytes) == cudaSuccess && cudaMalloc(&to, array_bytes) == cudaSuccess) {
    fill_kernel<<<blocks, kThreads>>>(reinterpret_cast<uint32_t*>(from), int64_t(array_bytes / sizeof(uint32_t)));
    const auto count = int64_t(array_bytes / sizeof(float4));
    copy_s = best_seconds(time, [&] { copy_kernel<<<blocks, kThreads>>>(from, to, count); });
    fma_s = best_seconds(time, [&] { fma_kernel<<<blocks, kThreads>>>(reinterpret_cast<float*>(to)); });
  }
  const auto error = cudaGetLastError();
  cudaFree(from);
  cudaFree(to);
  if (copy_s <= 0 || fma_s <= 0)
    return error == cudaSuccess ? "the GPU's ceilings could not be timed" : cudaGetErrorString(error);
  ceilings.array_bytes = int64_t(array_bytes);
  ceilings.copy_gb_s = 2 * double(array_bytes) / copy_s / 1e9;
  ceilings.fma_float32_gflop_s = 2.0 * blocks * kThreads * kChains * kRounds / fma_s / 1e9;
  return nullptr;
}

}  // namespace attnbench
