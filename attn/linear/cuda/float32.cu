// The kernels of linear attention on tensor cores, for float32, whose products are sums of three in TF32.
#include "attn/linear/cuda/run.cuh"

namespace attn::cuda {

void run_linear_float32(const LinearParams& params, int dim, Pass pass, cudaStream_t stream) {
  run_linear<float, Precision::tf32_three>(params, dim, pass, stream);
}
int64_t blocks_of_linear_float32(int dim, Pass pass) {
  return linear_blocks_per_multiprocessor<float, Precision::tf32_three>(dim, pass);
}
size_t shared_bytes_of_linear_float32(int dim, Pass pass) {
  return shared_bytes_of_linear<float, Precision::tf32_three>(dim, pass);
}

}  // namespace attn::cuda
