// Launches kernels on a stream, and chooses the types and the tile shape that a kernel is compiled for.
#pragma once

#ifdef ATTN_CUDA_EMULATION
#define C10_CUDA_CHECK(call) static_cast<void>(call)  // the emulation reports errors by exceptions
#else
#include <c10/cuda/CUDAException.h>
#endif
#include <c10/util/Exception.h>

#include <optional>

#include "attn/cuda/tiles.cuh"
#include "attn/element_type.h"

namespace attn::cuda {

// When kernels begin. Those that begin early must call wait_for_previous_kernel(): on sm_90 and later, their blocks take their
// places on the multiprocessors while the kernel before them ends (programmatic dependent launch), which shortens the time from
// one kernel to the next.
enum class Begin { after_previous, early };

// Launches kernels on a stream; in the emulation it runs them at once.
//
//   const StreamLauncher launch(stream);
//   launch(kernel, blocks, threads per block, bytes of dynamic shared memory, arguments…);
class StreamLauncher {
 public:
  static constexpr int64_t kMaxBlocks = 0x7fffffff;  // the largest first dimension of a grid

  explicit StreamLauncher(cudaStream_t stream, Begin begin = Begin::after_previous) : stream_(stream), begin_(begin) {}

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), int64_t blocks, int threads, size_t shared_bytes,
                  const Arguments&... arguments) const {
    TORCH_CHECK(blocks <= kMaxBlocks, "a CUDA kernel would need ", blocks, " blocks, more than the ", kMaxBlocks,
                " of a grid; split the batch");
    constexpr size_t kDefaultLimit = 48 << 10;  // above this limit CUDA requires the attribute
    if (shared_bytes > kDefaultLimit)
      C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
    if (blocks == 0) return;
#ifdef ATTN_CUDA_EMULATION
    emulation::launch(kernel, unsigned(blocks), unsigned(threads), shared_bytes, begin_ == Begin::early, arguments...);
#else
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(unsigned(blocks));
    config.blockDim = dim3(unsigned(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_;
    if (begin_ == Begin::early && compiled_to_wait(kernel)) {
      config.attrs = &early;
      config.numAttrs = 1;
    }
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
#endif
  }

  // How many blocks of a kernel a multiprocessor of the current GPU holds at once; at least 1.
  template <class... Parameters>
  static int64_t blocks_per_multiprocessor(void (*kernel)(Parameters...), int threads, size_t shared_bytes) {
#ifdef ATTN_CUDA_EMULATION
    (void)kernel, (void)threads, (void)shared_bytes;
    return 2;
#else
    int blocks = 0;
    C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes));
    return blocks > 1 ? blocks : 1;
#endif
  }

 private:
#ifndef ATTN_CUDA_EMULATION
  // Whether the code that runs on the current GPU was compiled for an architecture on which wait_for_previous_kernel() waits.
  // This is asked for one kernel of a launcher, since all kernels of a source are compiled for the same architectures.
  template <class... Parameters>
  bool compiled_to_wait(void (*kernel)(Parameters...)) const {
    if (!compiled_to_wait_) {
      cudaFuncAttributes attributes{};
      C10_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
      compiled_to_wait_ = attributes.ptxVersion >= 90;
    }
    return *compiled_to_wait_;
  }

  mutable std::optional<bool> compiled_to_wait_;
#endif

  [[maybe_unused]] cudaStream_t stream_;
  Begin begin_;
};

// Calls work(E{}, T{}), where E is the element type in kernels and T the type of accumulators.
template <class Work>
void with_types(ElementType element, const Work& work) {
  switch (element) {
    case ElementType::float32: return work(float(), float());
    case ElementType::float64: return work(double(), double());
    case ElementType::bfloat16: return work(BFloat16{}, float());
    case ElementType::float16: return work(Half{}, float());
  }
}

// Calls work(TileShape<E, kPrecision, dim>{}) for a dimension that tile_dim() returned.
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
