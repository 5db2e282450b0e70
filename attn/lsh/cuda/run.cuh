// Runs a pass with the kernels compiled for a tile dimension. Each element type has a .cu file of its own that compiles it.
#pragma once

#include "attn/lsh/cuda/launch.cuh"
#include "attn/lsh/cuda/run.h"

namespace attn::cuda {

template <class E, Precision kPrecision>
void run_lsh(const LshParams& params, int dim, Pass pass, cudaStream_t stream) {
  const StreamLauncher launch(stream, Begin::early);
  with_tile_shape<E, kPrecision>(dim, [&](auto shape) {
    using S = decltype(shape);
    if (pass == Pass::forward) launch_lsh_forward<S>(params, launch);
    else launch_lsh_backward<S>(params, launch);
  });
}

template <class E, Precision kPrecision>
size_t shared_bytes_of_lsh(int dim, Pass pass) {
  size_t bytes = 0;
  with_tile_shape<E, kPrecision>(dim, [&](auto shape) { bytes = pass_shared_bytes<decltype(shape)>(pass); });
  return bytes;
}

}  // namespace attn::cuda
