// Implements the kernel that holds a stream until the host releases it, and the kernel that reads memory.
#include "harness/worker/cuda/queue_kernels.h"

namespace attnbench {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;
// Each look at the flags reads host memory, which takes about a microsecond.
constexpr int64_t kMaxLooks = 4'000'000;

__device__ uint64_t timer_ns() {
  uint64_t ns = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void hold_kernel(HoldFlags* flags, uint32_t number, uint64_t max_ns) {
  const uint64_t begin = timer_ns();
  for (int64_t look = 0; look < kMaxLooks && timer_ns() - begin < max_ns; ++look)
    if (int32_t(flags->released - number) >= 0) return;  // The signed difference is right even when the numbers wrap around.
  if (int32_t(flags->released - number) >= 0) return;
  flags->expired = number;
  __threadfence_system();
}

__global__ void read_kernel(const float4* from, int64_t count, float* sink) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  float sum = 0;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    // Loads that bypass the first-level cache leave their data in the second level.
    const float4 x = __ldcg(from + i);
    sum += x.x + x.y + x.z + x.w;
  }
  // The buffer holds zeros, so that this is never true.
  if (sum != 0) *sink = sum;
}

}  // namespace

cudaError_t launch_hold(HoldFlags* flags, uint32_t number, uint64_t max_ns, cudaStream_t stream) {
  hold_kernel<<<1, 1, 0, stream>>>(flags, number, max_ns);
  return cudaGetLastError();
}

cudaError_t launch_read(const void* from, int64_t bytes, float* sink, int multiprocessors, cudaStream_t stream) {
  read_kernel<<<kBlocksPerMultiprocessor * multiprocessors, kThreads, 0, stream>>>(static_cast<const float4*>(from),
                                                                                   bytes / int64_t(sizeof(float4)), sink);
  return cudaGetLastError();
}

}  // namespace attnbench
