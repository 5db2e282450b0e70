// Chooses among the kernels of linear.cuh by the padded dimension. Each element type is compiled by a file of its own.
#pragma once

#include <c10/util/Exception.h>

#include "attn/kernels/cuda/launch.cuh"
#include "attn/kernels/cuda/linear_launch.cuh"
#include "attn/kernels/cuda/run.h"

namespace attn::cuda {

template <class E, Precision kPrecision>
void run_linear(const LinearCall& call, int dim, Pass pass, cudaStream_t stream) {
  const OnStream launch(stream);
  const auto run = [&](auto shape) {
    LinearLaunch<decltype(shape), OnStream> linear(call, launch);
    if (pass == Pass::forward) linear.forward();
    else linear.backward();
  };
  switch (dim) {
    case 16: return run(TileShape<E, kPrecision, 16>{});
    case 32: return run(TileShape<E, kPrecision, 32>{});
    case 64: return run(TileShape<E, kPrecision, 64>{});
    case 128: return run(TileShape<E, kPrecision, 128>{});
    default: TORCH_CHECK(false, "linear attention: no CUDA kernel for dimension ", dim);
  }
}

}  // namespace attn::cuda
