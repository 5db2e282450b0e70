// The functions in .cu files that the host side of linear attention calls. Each launches the kernels of one pass on a stream.
#pragma once

#include "attn/cuda/stream.h"
#include "attn/element_type.h"
#include "attn/linear/cuda/params.h"

namespace attn::cuda {

// Kernels with tensor cores. `dim` is tile_dim(head_dim, value_dim), which must not be 0; the rows of all tensors must begin and
// end at multiples of 16 bytes.
void run_linear_bfloat16(const LinearParams& params, int dim, Pass pass, cudaStream_t stream);
void run_linear_float16(const LinearParams& params, int dim, Pass pass, cudaStream_t stream);
void run_linear_float32(const LinearParams& params, int dim, Pass pass, cudaStream_t stream);  // a product is three TF32 products
void run_linear_tf32(const LinearParams& params, int dim, Pass pass, cudaStream_t stream);

// How many blocks of these kernels a multiprocessor of the current GPU holds at once.
int64_t blocks_of_linear_bfloat16(int dim, Pass pass);
int64_t blocks_of_linear_float16(int dim, Pass pass);
int64_t blocks_of_linear_float32(int dim, Pass pass);
int64_t blocks_of_linear_tf32(int dim, Pass pass);

// The shared memory in bytes that a block of these kernels needs in a pass.
size_t shared_bytes_of_linear_bfloat16(int dim, Pass pass);
size_t shared_bytes_of_linear_float16(int dim, Pass pass);
size_t shared_bytes_of_linear_float32(int dim, Pass pass);
size_t shared_bytes_of_linear_tf32(int dim, Pass pass);

// Kernels without tensor cores, for any dimension and element type. `states` and, for the backward pass, `query_states` must be
// zeros [batch·heads, D·M + D] in the accumulator dtype; the former become S and Z, the latter R and Y.
void run_linear_plain(const LinearParams& params, ElementType element, Pass pass, void* states, void* query_states,
                      cudaStream_t stream);
// The shared memory in bytes that a block of these kernels needs in either pass. It includes that of a decoding step.
size_t shared_bytes_of_linear_plain(int64_t head_dim, int64_t value_dim, ElementType element);

// One decoding step, for any dimension and element type. S [batch·heads, D, M] and Z [batch·heads, D] in the accumulator dtype
// change in place.
void run_linear_step(const LinearParams& params, ElementType element, void* s, void* z, cudaStream_t stream);

}  // namespace attn::cuda
