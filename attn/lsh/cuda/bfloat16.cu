// The kernels of LSH attention for bfloat16.
#include "attn/lsh/cuda/run.cuh"

namespace attn::cuda {

void run_lsh_bfloat16(const LshParams& params, int dim, Pass pass, cudaStream_t stream) {
  run_lsh<BFloat16, Precision::half_precision>(params, dim, pass, stream);
}
size_t shared_bytes_of_lsh_bfloat16(int dim, Pass pass) {
  return shared_bytes_of_lsh<BFloat16, Precision::half_precision>(dim, pass);
}

}  // namespace attn::cuda
