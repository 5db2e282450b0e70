// What the host side of linear attention calls in the .cu files. Each function puts the kernels of one pass on a stream.
#pragma once

#include "attn/cuda/stream.h"
#include "attn/element_type.h"
#include "attn/linear/cuda/params.h"

namespace attn::cuda {

// With tensor cores. `dim` is tile_dim(head_dim, value_dim), which is not 0; rows begin and end at multiples of 16 bytes.
void run_linear_bfloat16(const LinearParams& params, int dim, Pass pass, cudaStream_t stream);
void run_linear_float16(const LinearParams& params, int dim, Pass pass, cudaStream_t stream);
void run_linear_float32(const LinearParams& params, int dim, Pass pass, cudaStream_t stream);  // three TF32 products for one
void run_linear_tf32(const LinearParams& params, int dim, Pass pass, cudaStream_t stream);

// Without tensor cores, for any dimension and element type. `states` and, for backward, `more_states` are zeros in the
// accumulator dtype, [batch·heads, D·M + D].
void run_linear_plain(const LinearParams& params, ElementType element, Pass pass, void* states, void* more_states,
                      cudaStream_t stream);

// One decoding step, for any dimension and element type. S [batch·heads, D, M] and Z [batch·heads, D] in the accumulator dtype
// change in place.
void run_linear_step(const LinearParams& params, ElementType element, void* s, void* z, cudaStream_t stream);

}  // namespace attn::cuda
