// What linear.cpp and lsh.cpp call in the .cu files: all kernels of one call put on a stream.
#pragma once

#ifdef ATTN_CUDA_EMULATION
#include ATTN_CUDA_EMULATION
#else
#include <cuda_runtime_api.h>
#endif

#include "attn/linear/cuda/call.h"
#include "attn/lsh/cuda/call.h"

namespace attn::cuda {

enum class Pass { forward, backward };

// Tensor cores; `dim`: 16, 32, 64 or 128, not less than head_dim and value_dim. Rows begin at multiples of 16 bytes and end
// there.
void run_linear_bfloat16(const LinearCall& call, int dim, Pass pass, cudaStream_t stream);
void run_linear_float16(const LinearCall& call, int dim, Pass pass, cudaStream_t stream);
void run_linear_float32(const LinearCall& call, int dim, Pass pass, cudaStream_t stream);  // three TF32 products for one
void run_linear_tf32(const LinearCall& call, int dim, Pass pass, cudaStream_t stream);

enum class ElementKind { float32, float64, bfloat16, float16 };

// Any dimension. `states` [batch·heads, D·M + D] of the sums' type, zeros: two of them for backward.
void run_linear_plain(const LinearCall& call, ElementKind element, Pass pass, void* states, void* more_states,
                      cudaStream_t stream);
void run_linear_step(const LinearCall& call, ElementKind element, void* s, void* z, cudaStream_t stream);

// Bytes that sorting `count` keys takes beside them.
size_t sort_bytes(int64_t count);
// Writes call.order. keys, sorted: [batch·heads·rounds·length].
void run_lsh_sort(const LshCall& call, const LshRotations& rotations, ElementKind element, uint64_t* keys, uint64_t* sorted,
                  void* scratch, size_t scratch_bytes, cudaStream_t stream);
void run_lsh_bfloat16(const LshCall& call, int dim, Pass pass, cudaStream_t stream);
void run_lsh_float16(const LshCall& call, int dim, Pass pass, cudaStream_t stream);
void run_lsh_float32(const LshCall& call, int dim, Pass pass, cudaStream_t stream);

}  // namespace attn::cuda
