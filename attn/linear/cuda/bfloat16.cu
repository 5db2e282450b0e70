#include "attn/linear/cuda/dims.cuh"

namespace attn::cuda {

void run_linear_bfloat16(const LinearCall& call, int dim, Pass pass, cudaStream_t stream) {
  run_linear<BFloat16, Precision::half_precision>(call, dim, pass, stream);
}

}  // namespace attn::cuda
