#include "attn/lsh/cuda/run.cuh"

namespace attn::cuda {

void run_lsh_float16(const LshParams& params, int dim, Pass pass, cudaStream_t stream) {
  run_lsh<Half, Precision::tf32>(params, dim, pass, stream);
}

}  // namespace attn::cuda
