#include "attn/linear/cuda/dims.cuh"

namespace attn::cuda {

void run_linear_float16(const LinearCall& call, int dim, Pass pass, cudaStream_t stream) {
  run_linear<Half, Precision::tf32>(call, dim, pass, stream);
}

}  // namespace attn::cuda
