#include "attn/lsh/cuda/dims.cuh"

namespace attn::cuda {

void run_lsh_float16(const LshCall& call, int dim, Pass pass, cudaStream_t stream) {
  run_lsh<Half, Precision::tf32>(call, dim, pass, stream);
}

}  // namespace attn::cuda
