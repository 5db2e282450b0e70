// Runs a pass with the kernels for a tile dimension. Each element type is compiled by a .cu file of its own.
#pragma once

#include "attn/linear/cuda/run.h"
#include "attn/linear/cuda/tensor_cores/launch.cuh"

namespace attn::cuda {

template <class E, Precision kPrecision>
void run_linear(const LinearParams& params, int dim, Pass pass, cudaStream_t stream) {
  const StreamLauncher launch(stream, Begin::early);
  with_tile_shape<E, kPrecision>(dim, [&](auto shape) {
    const LinearLaunch<decltype(shape)> linear(params, launch);
    if (pass == Pass::forward) linear.forward();
    else linear.backward();
  });
}

template <class E, Precision kPrecision>
int64_t linear_blocks_per_multiprocessor(int dim, Pass pass) {
  int64_t blocks = 1;
  with_tile_shape<E, kPrecision>(dim,
                                 [&](auto shape) { blocks = LinearLaunch<decltype(shape)>::blocks_per_multiprocessor(pass); });
  return blocks;
}

template <class E, Precision kPrecision>
size_t shared_bytes_of_linear(int dim, Pass pass) {
  size_t bytes = 0;
  with_tile_shape<E, kPrecision>(dim, [&](auto shape) { bytes = LinearLaunch<decltype(shape)>::shared_bytes(pass); });
  return bytes;
}

}  // namespace attn::cuda
