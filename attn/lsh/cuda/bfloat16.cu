#include "attn/lsh/cuda/dims.cuh"

namespace attn::cuda {

void run_lsh_bfloat16(const LshCall& call, int dim, Pass pass, cudaStream_t stream) {
  run_lsh<BFloat16, Precision::half_precision>(call, dim, pass, stream);
}

}  // namespace attn::cuda
