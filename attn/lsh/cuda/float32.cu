#include "attn/lsh/cuda/dims.cuh"

namespace attn::cuda {

void run_lsh_float32(const LshCall& call, int dim, Pass pass, cudaStream_t stream) {
  run_lsh<float, Precision::tf32_three>(call, dim, pass, stream);
}

}  // namespace attn::cuda
