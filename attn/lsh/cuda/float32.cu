#include "attn/lsh/cuda/run.cuh"

namespace attn::cuda {

void run_lsh_float32(const LshParams& params, int dim, Pass pass, cudaStream_t stream) {
  run_lsh<float, Precision::tf32_three>(params, dim, pass, stream);
}

}  // namespace attn::cuda
