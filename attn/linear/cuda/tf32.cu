#include "attn/linear/cuda/dims.cuh"

namespace attn::cuda {

void run_linear_tf32(const LinearCall& call, int dim, Pass pass, cudaStream_t stream) {
  run_linear<float, Precision::tf32>(call, dim, pass, stream);
}

}  // namespace attn::cuda
