// Chooses among the kernels of lsh.cuh by the padded dimension. Each element type is compiled by a file of its own.
#pragma once

#include "attn/cuda/launch.cuh"
#include "attn/lsh/cuda/launch.cuh"
#include "attn/cuda/run.h"

namespace attn::cuda {

template <class E, Precision kPrecision>
void run_lsh(const LshCall& call, int dim, Pass pass, cudaStream_t stream) {
  const OnStream launch(stream);
  with_tile_shape<E, kPrecision>(dim, [&](auto shape) {
    using S = decltype(shape);
    if (pass == Pass::forward) run_lsh_forward<S>(call, launch);
    else run_lsh_backward<S>(call, launch);
  });
}

}  // namespace attn::cuda
