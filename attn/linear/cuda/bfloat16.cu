// The kernels of linear attention on tensor cores, for bfloat16.
#include "attn/linear/cuda/run.cuh"

namespace attn::cuda {

void run_linear_bfloat16(const LinearParams& params, int dim, Pass pass, cudaStream_t stream) {
  run_linear<BFloat16, Precision::half_precision>(params, dim, pass, stream);
}
int64_t blocks_of_linear_bfloat16(int dim, Pass pass) {
  return linear_blocks_per_multiprocessor<BFloat16, Precision::half_precision>(dim, pass);
}
size_t shared_bytes_of_linear_bfloat16(int dim, Pass pass) {
  return shared_bytes_of_linear<BFloat16, Precision::half_precision>(dim, pass);
}

}  // namespace attn::cuda
