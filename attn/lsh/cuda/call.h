// One call of LSH attention, as its CUDA kernels take it. Definitions as in attn/lsh/lsh_attention.h.
#pragma once

#include <cstdint>

#include "attn/linear/cuda/call.h"  // Tensor4

namespace attn::cuda {

// G = batch·heads sequences of N positions, R rounds, chunks of m places, C = ⌈N/m⌉ of them a round. Arrays are contiguous.
struct LshCall {
  int64_t batch, heads, length, rounds, chunk, chunks;
  int head_dim, value_dim;
  bool causal, trax;
  const int64_t* key_lengths;  // [batch], or null
  Tensor4 qk, v, output, gradient, qk_gradient, v_gradient;
  int64_t* order;       // [G,R,N]: positions in the order of (bucket, position), hidden ones last
  double* log_sum_exp;  // [G,R,N] by position
  // Forward, with more rounds than one: the output of the rounds so far, and their largest log-sum-exp with
  // Σ exp(log-sum-exp − largest).
  float* sums;     // [G,N,M]
  double* merged;  // [G,N,2]
  // Backward: what of the output comes from each round, and where gradients add up: of x as a query, through the key made from x,
  // and of v.
  const float* shares;                  // [G,R,N] by position
  float *of_query, *of_key, *of_value;  // [G,N,D], [G,N,D], [G,N,M], zeros at first
};

// Rotations [R, D, columns]: a bucket is argmax [y; −y] of y = x·rotation over the first columns, plus 2·first_half times that
// over the others, if there are any. Always the bucket that float64 gives.
struct LshRotations {
  const double* exact;
  const float* rounded;
  int first_half, second_half;
  const float* longest;  // of the columns' lengths; on the device, so that nobody waits for it
};

}  // namespace attn::cuda
