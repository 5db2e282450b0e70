// What the host side of LSH attention calls in the .cu files. Each function puts its kernels on a stream.
#pragma once

#include "attn/cuda/stream.h"
#include "attn/element_type.h"
#include "attn/lsh/cuda/params.h"

namespace attn::cuda {

// The memory that sorting `count` keys needs beside them.
size_t sort_bytes(int64_t count);
// Hashes and sorts: writes params.order. keys and sorted are [G·R·N]; scratch has sort_bytes(G·R·N) bytes. Not for float64.
void run_lsh_sort(const LshParams& params, const LshRotations& rotations, ElementType element, uint64_t* keys, uint64_t* sorted,
                  void* scratch, size_t scratch_bytes, cudaStream_t stream);

// `dim` is tile_dim(head_dim, value_dim), which is not 0; rows begin and end at multiples of 16 bytes.
void run_lsh_bfloat16(const LshParams& params, int dim, Pass pass, cudaStream_t stream);
void run_lsh_float16(const LshParams& params, int dim, Pass pass, cudaStream_t stream);
void run_lsh_float32(const LshParams& params, int dim, Pass pass, cudaStream_t stream);

}  // namespace attn::cuda
