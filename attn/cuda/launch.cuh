// Puts kernels on a stream.
#pragma once

#ifndef ATTN_CUDA_EMULATION
#include <c10/cuda/CUDAException.h>
#endif
#include <c10/util/Exception.h>

#include "attn/cuda/tiles.cuh"

namespace attn::cuda {

class OnStream {
 public:
  explicit OnStream(cudaStream_t stream) : stream_(stream) {}

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), int64_t blocks, int threads, size_t shared_bytes,
                  const Arguments&... arguments) const {
#ifdef ATTN_CUDA_EMULATION
    emulation::run_grid(unsigned(blocks), unsigned(threads), shared_bytes, [&] { kernel(arguments...); });
#else
    constexpr size_t kWithoutAsking = 48 << 10;
    if (shared_bytes > kWithoutAsking)
      C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
    if (blocks == 0) return;
    // clang-format off
    kernel<<<unsigned(blocks), unsigned(threads), shared_bytes, stream_>>>(arguments...);
    // clang-format on
    C10_CUDA_KERNEL_LAUNCH_CHECK();
#endif
  }

 private:
  [[maybe_unused]] cudaStream_t stream_;
};

// work(the shape of tiles) for a padded dimension that kernels are compiled for.
template <class E, Precision kPrecision, class Work>
void with_tile_shape(int dim, const Work& work) {
  switch (dim) {
    case 16: return work(TileShape<E, kPrecision, 16>{});
    case 32: return work(TileShape<E, kPrecision, 32>{});
    case 64: return work(TileShape<E, kPrecision, 64>{});
    case 128: return work(TileShape<E, kPrecision, 128>{});
    default: TORCH_CHECK(false, "no CUDA kernel for dimension ", dim);
  }
}

}  // namespace attn::cuda
