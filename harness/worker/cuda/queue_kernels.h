// Kernels that the timing of samples queues in a CUDA stream. queue_kernels.cu implements them and does not include LibTorch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace attnbench {

// What the host and the kernel that holds a stream tell each other, in host memory that is mapped into the GPU's. Holds are
// numbered from 1.
struct HoldFlags {
  volatile uint32_t released = 0;  // the host has released all holds up to this one
  volatile uint32_t expired = 0;   // the last hold that ended before it was released
};

// Queues a kernel of one thread, which ends when the hold `number` is released or, whatever happens, after `max_ns` nanoseconds
// of the GPU's timer. Should that timer not advance, it ends after a bounded number of looks at the flags, of about a microsecond
// each. `flags` is a pointer of the GPU. Returns the error of the launch.
cudaError_t launch_hold(HoldFlags* flags, uint32_t number, uint64_t max_ns, cudaStream_t stream);

// Queues a kernel that reads the `bytes` bytes at `from`, a multiple of 16, and writes nothing. `sink` is an address of the GPU
// that the kernel could write to, so that the compiler keeps the reads. Returns the error of the launch.
cudaError_t launch_read(const void* from, int64_t bytes, float* sink, int multiprocessors, cudaStream_t stream);

}  // namespace attnbench
