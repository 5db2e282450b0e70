#include "attn/linear/cuda/dims.cuh"

namespace attn::cuda {

void run_linear_float32(const LinearCall& call, int dim, Pass pass, cudaStream_t stream) {
  run_linear<float, Precision::tf32_three>(call, dim, pass, stream);
}

}  // namespace attn::cuda
