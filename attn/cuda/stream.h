// What the host side passes to the functions in .cu files that launch kernels: cudaStream_t, and which pass to compute.
#pragma once

#ifdef ATTN_CUDA_EMULATION
#include ATTN_CUDA_EMULATION
#else
#include <cuda_runtime_api.h>
#endif

namespace attn::cuda {

enum class Pass { forward, backward };

}  // namespace attn::cuda
