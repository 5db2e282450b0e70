// The kernels of LSH attention for float32.
#include "attn/lsh/cuda/run.cuh"

namespace attn::cuda {

void run_lsh_float32(const LshParams& params, int dim, Pass pass, cudaStream_t stream) {
  run_lsh<float, Precision::tf32_three>(params, dim, pass, stream);
}
size_t shared_bytes_of_lsh_float32(int dim, Pass pass) { return shared_bytes_of_lsh<float, Precision::tf32_three>(dim, pass); }

}  // namespace attn::cuda
