// The functions in the .cu files that the host side of LSH attention calls. Each one launches its kernels on a stream and does
// not wait for them.
#pragma once

#include "attn/cuda/stream.h"
#include "attn/element_type.h"
#include "attn/lsh/cuda/params.h"

namespace attn::cuda {

// The scratch memory in bytes that run_lsh_sort() needs for `count` keys.
size_t sort_bytes(int64_t count);
// Hashes and sorts all positions, and writes params.order. keys and sorted are [G·R·N]; scratch has sort_bytes(G·R·N) bytes.
// `element` is not float64.
void run_lsh_sort(const LshParams& params, const LshRotations& rotations, ElementType element, uint64_t* keys, uint64_t* sorted,
                  void* scratch, size_t scratch_bytes, cudaStream_t stream);

// Run the forward or the backward pass. `dim` is tile_dim(head_dim, value_dim) and must not be 0. Rows of tensors must begin and
// end at multiples of 16 bytes.
void run_lsh_bfloat16(const LshParams& params, int dim, Pass pass, cudaStream_t stream);
void run_lsh_float16(const LshParams& params, int dim, Pass pass, cudaStream_t stream);
void run_lsh_float32(const LshParams& params, int dim, Pass pass, cudaStream_t stream);

// The shared memory in bytes that a block needs in a pass.
size_t shared_bytes_of_lsh_bfloat16(int dim, Pass pass);
size_t shared_bytes_of_lsh_float16(int dim, Pass pass);
size_t shared_bytes_of_lsh_float32(int dim, Pass pass);

}  // namespace attn::cuda
