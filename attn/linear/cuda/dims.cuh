// Chooses among the kernels of linear.cuh by the padded dimension. Each element type is compiled by a file of its own.
#pragma once

#include "attn/cuda/launch.cuh"
#include "attn/linear/cuda/launch.cuh"
#include "attn/cuda/run.h"

namespace attn::cuda {

template <class E, Precision kPrecision>
void run_linear(const LinearCall& call, int dim, Pass pass, cudaStream_t stream) {
  const OnStream launch(stream);
  with_tile_shape<E, kPrecision>(dim, [&](auto shape) {
    LinearLaunch<decltype(shape), OnStream> linear(call, launch);
    if (pass == Pass::forward) linear.forward();
    else linear.backward();
  });
}

}  // namespace attn::cuda
