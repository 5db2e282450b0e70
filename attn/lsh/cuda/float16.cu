// The kernels of LSH attention for float16.
#include "attn/lsh/cuda/run.cuh"

namespace attn::cuda {

void run_lsh_float16(const LshParams& params, int dim, Pass pass, cudaStream_t stream) {
  run_lsh<Half, Precision::tf32>(params, dim, pass, stream);
}
size_t shared_bytes_of_lsh_float16(int dim, Pass pass) { return shared_bytes_of_lsh<Half, Precision::tf32>(dim, pass); }

}  // namespace attn::cuda
