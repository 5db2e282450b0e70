// Has the small kernels, each of which does what its name says.
#include "tests/emulation/instrumented/faulty_kernels.h"

#include <cstdint>

#include "attn/cuda/device.h"

namespace attn::emulation {
namespace {

using cuda::kAllLanes;
using cuda::thread;

constexpr int kThreads = 64, kSharedBytes = 1024;

int* shared() { return reinterpret_cast<int*>(cuda::shared_memory()); }
// Keeps a value that a kernel reads from being optimised away.
void use(int value) { asm volatile("" : : "r"(value)); }

template <class... Parameters, class... Arguments>
void start(void (*kernel)(Parameters...), int blocks, const Arguments&... arguments) {
  launch(kernel, unsigned(blocks), kThreads, kSharedBytes, /*begins_early=*/false, arguments...);
}

__global__ void barrier_kernel(bool has_barrier) {
  shared()[thread()] = thread();
  if (has_barrier) __syncthreads();
  use(shared()[kThreads - 1 - thread()]);
}
__global__ void write_after_read_kernel() {
  use(shared()[0]);
  if (thread() == 40) shared()[0] = 1;
}
enum class Between { syncwarp, shuffle };
__global__ void warp_kernel(Between between, int distance) {
  shared()[thread()] = thread();
  if (between == Between::syncwarp) __syncwarp();
  else __shfl_sync(kAllLanes, thread(), 0);
  use(shared()[(thread() + distance) % kThreads / 32 * 32 + thread() % 32 / 2]);
}
__global__ void write_kernel(int* x) {
  if (thread() == 0) *x = int(blockIdx.x);
}
__global__ void early_kernel(int* x, bool waits) {
  if (waits || thread() != 5) cuda::wait_for_previous_kernel();
  x[thread()] = 1;
}
__global__ void add_kernel(int* x, bool reads) {
  atomicAdd(x, 1);
  if (reads) use(*x);
}
__global__ void copy_kernel(const int* from, bool waits) {
  if (thread() == 0) {
    cuda::copy_async(shared(), from, true), cuda::end_copy_group();
    if (waits) cuda::wait_for_copies<0>();
  }
  __syncthreads();
  use(shared()[1]);
  cuda::wait_for_copies<0>();
}
struct alignas(16) Vector {
  int x[4];
};
__global__ void vector_kernel() {
  if (thread() == 0) *reinterpret_cast<Vector*>(shared() + 1) = Vector{};
}
__global__ void stride_kernel(int stride) { shared()[thread() * stride] = 1, use(shared()[thread() * stride]); }
__global__ void global_kernel(const int* from, int16_t* to) {
  use(from[thread()]);
  __syncthreads();
  use(from[thread()]);
  to[int(blockIdx.x) * kThreads + thread()] = 1;
}

}  // namespace

void reads_after_a_barrier() { start(barrier_kernel, 2, true); }
void reads_without_a_barrier() { start(barrier_kernel, 2, false); }
void writes_after_reads_without_a_barrier() { start(write_after_read_kernel, 1); }
void lanes_read_after_syncwarp() { start(warp_kernel, 1, Between::syncwarp, 0); }
void lanes_read_after_a_shuffle() { start(warp_kernel, 1, Between::shuffle, 0); }
void warps_read_after_syncwarp() { start(warp_kernel, 1, Between::syncwarp, 32); }
void blocks_write_the_same_element() {
  std::vector<int> x(1);
  start(write_kernel, 2, x.data());
}
void writes_early(bool waits, bool begins_early) {
  std::vector<int> x(kThreads);
  launch(early_kernel, 1, kThreads, kSharedBytes, begins_early, x.data(), waits);
}
void blocks_add_atomically() {
  std::vector<int> x(1);
  start(add_kernel, 2, x.data(), false);
}
void blocks_read_what_others_add_atomically() {
  std::vector<int> x(1);
  start(add_kernel, 2, x.data(), true);
}
void reads_a_copy_after_waiting() {
  const std::vector<int> from(4);
  start(copy_kernel, 1, from.data(), true);
}
void reads_a_copy_before_waiting() {
  const std::vector<int> from(4);
  start(copy_kernel, 1, from.data(), false);
}
void loads_a_misaligned_vector() { start(vector_kernel, 1); }

void reads_with_stride(int stride) { launch(stride_kernel, 1U, 32U, size_t(4 * 32 * stride), false, stride); }
void reads_and_writes_global_memory() {
  const std::vector<int> from(kThreads);
  std::vector<int16_t> to(2 * kThreads);
  start(global_kernel, 2, from.data(), to.data());
}

}  // namespace attn::emulation
