// Measures a GPU's bandwidth and its arithmetic rate outside the tensor cores:
//
//   copy   copies an array of 1 GiB or a quarter of the free memory, whichever is less; counts bytes read plus bytes written
//   fma    runs eight independent chains of float32 multiply-adds in the registers of each thread; counts two operations each
//
// Each result is that of the fastest of kRuns launches, timed with CUDA events.
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

__global__ void fma_kernel(float* sink) {
  float chain[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) chain[c] = float(threadIdx.x + c);
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) chain[c] = fmaf(chain[c], 0.999f, 0.001f);
  }
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += chain[c];
  // This is never true, but the compiler cannot know that, so it must compute the chains.
  if (sum == -1.0f) *sink = sum;
}

// Seconds of the fastest of kRuns launches, or a negative number after an error.
template <class Launch>
double best_seconds(cudaEvent_t begin, cudaEvent_t end, const Launch& launch) {
  double best = -1;
  for (int run = 0; run < kRuns; ++run) {
    cudaEventRecord(begin);
    launch();
    if (cudaGetLastError() != cudaSuccess) return -1;
    cudaEventRecord(end);
    if (cudaEventSynchronize(end) != cudaSuccess) return -1;
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    best = best < 0 ? ms / 1e3 : std::min(best, ms / 1e3);
  }
  return best;
}

}  // namespace

const char* measure_copy_and_fma(GpuCeilings& ceilings) {
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
  cudaEvent_t begin{}, end{};
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  const int blocks = 8 * device.multiProcessorCount;
  double copy_s = -1, fma_s = -1;
  if (cudaMalloc(&from, array_bytes) == cudaSuccess && cudaMalloc(&to, array_bytes) == cudaSuccess) {
    cudaMemset(from, 0, array_bytes);
    const auto count = int64_t(array_bytes / sizeof(float4));
    copy_s = best_seconds(begin, end, [&] { copy_kernel<<<blocks, kThreads>>>(from, to, count); });
    fma_s = best_seconds(begin, end, [&] { fma_kernel<<<blocks, kThreads>>>(reinterpret_cast<float*>(to)); });
  }
  const auto error = cudaGetLastError();
  cudaFree(from);
  cudaFree(to);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  if (copy_s <= 0 || fma_s <= 0)
    return error == cudaSuccess ? "the GPU's ceilings could not be timed" : cudaGetErrorString(error);
  ceilings.array_bytes = int64_t(array_bytes);
  ceilings.copy_gb_s = 2 * double(array_bytes) / copy_s / 1e9;
  ceilings.fma_float32_gflop_s = 2.0 * blocks * kThreads * kChains * kRounds / fma_s / 1e9;
  return nullptr;
}

}  // namespace attnbench
