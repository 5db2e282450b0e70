// Puts kernels on a stream.
#pragma once

#include <c10/cuda/CUDAException.h>

#include "attn/kernels/cuda/device.h"

namespace attn::cuda {

class OnStream {
 public:
  explicit OnStream(cudaStream_t stream) : stream_(stream) {}

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), int64_t blocks, int threads, size_t shared_bytes,
                  const Arguments&... arguments) const {
    constexpr size_t kWithoutAsking = 48 << 10;
    if (shared_bytes > kWithoutAsking)
      C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
    if (blocks == 0) return;
    kernel<<<unsigned(blocks), unsigned(threads), shared_bytes, stream_>>>(arguments...);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }

 private:
  cudaStream_t stream_;
};

}  // namespace attn::cuda
