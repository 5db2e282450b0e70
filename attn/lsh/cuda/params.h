// The parameters of LSH attention's CUDA kernels, which are passed to kernels as one value. attn/lsh/lsh_attention.h defines LSH
// attention.
#pragma once

#include <cstdint>

#include "attn/cuda/strided_tensor.h"

namespace attn::cuda {

// G = batch·heads sequences of N positions, R rounds, chunks of m places, C = ⌈N/m⌉ chunks per round. Arrays are contiguous.
struct LshParams {
  int64_t batch, heads, length, rounds, chunk, chunks;  // length = N, rounds = R, chunk = m, chunks = C
  int head_dim, value_dim;                              // D, M
  bool causal, trax;
  const int64_t* key_lengths;  // [batch]; values may lie outside 0…N. Null if all keys are visible
  StridedTensor qk, v, output, grad_output, grad_qk, grad_v;
  int64_t* order;       // [G,R,N]: the positions sorted by (bucket, position), hidden ones last
  double* log_sum_exp;  // [G,R,N] by position: of each query's logits in each round
  // Used by the forward pass if there are several rounds.
  float* partial_output;  // [G,N,M]: the output of the rounds so far
  double* merged;         // [G,N,2]: the largest log-sum-exp of the rounds so far, and Σ exp(log-sum-exp − largest); trax only
  // Used by the backward pass.
  const float* shares;  // [G,R,N] by position: the share of each round in a row's output
  // The accumulators of gradients, by position, are zeros at first: of x as a query, of the key made from x and of v where a
  // chunk sees its own keys, and the same where it looks back at the chunk before.
  float *grad_query, *grad_key, *grad_value;   // [G,N,D], [G,N,D], [G,N,M]
  float *grad_key_before, *grad_value_before;  // [G,N,D], [G,N,M]
  // The same by place, for the first chunk of a round that looks back at the last chunk of another round; null where none does.
  float *wrapped_key, *wrapped_value;  // [G,m,D], [G,m,M]

  // Whether the first chunk of a round looks back at a chunk of another round that is not the only one of its round.
  bool wraps() const { return trax && rounds > 1 && chunks > 1; }
};

// Rotations [R, D, columns]. A bucket is argmax [y; −y] of y = x·rotation over the first_half columns. If second_half is not 0,
// 2·first_half times the argmax over the second_half columns after them is added. Buckets are always those that float64 gives.
struct LshRotations {
  const double* exact;
  const float* rounded;
  int first_half, second_half;
  const float* max_norm;  // one number, the largest Euclidean norm of a column; on the device, so that the host need not wait
};

}  // namespace attn::cuda
