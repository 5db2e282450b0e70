// Chooses among the kernels of lsh.cuh by the padded dimension. Each element type is compiled by a file of its own.
#pragma once

#include <c10/util/Exception.h>

#include "attn/kernels/cuda/launch.cuh"
#include "attn/kernels/cuda/lsh_launch.cuh"
#include "attn/kernels/cuda/run.h"

namespace attn::cuda {

template <class E, Precision kPrecision>
void run_lsh(const LshCall& call, int dim, Pass pass, cudaStream_t stream) {
  const OnStream launch(stream);
  const auto run = [&](auto shape) {
    using S = decltype(shape);
    if (pass == Pass::forward) run_lsh_forward<S>(call, launch);
    else run_lsh_backward<S>(call, launch);
  };
  switch (dim) {
    case 16: return run(TileShape<E, kPrecision, 16>{});
    case 32: return run(TileShape<E, kPrecision, 32>{});
    case 64: return run(TileShape<E, kPrecision, 64>{});
    case 128: return run(TileShape<E, kPrecision, 128>{});
    default: TORCH_CHECK(false, "LSH attention: no CUDA kernel for dimension ", dim);
  }
}

}  // namespace attn::cuda
