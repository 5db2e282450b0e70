// The kernels of linear attention on tensor cores, for float16.
#include "attn/linear/cuda/run.cuh"

namespace attn::cuda {

void run_linear_float16(const LinearParams& params, int dim, Pass pass, cudaStream_t stream) {
  run_linear<Half, Precision::tf32>(params, dim, pass, stream);
}
int64_t blocks_of_linear_float16(int dim, Pass pass) {
  return linear_blocks_per_multiprocessor<Half, Precision::tf32>(dim, pass);
}
size_t shared_bytes_of_linear_float16(int dim, Pass pass) { return shared_bytes_of_linear<Half, Precision::tf32>(dim, pass); }

}  // namespace attn::cuda
