// The parameters of LSH attention's CUDA kernels, passed to them whole. LSH attention is defined in attn/lsh/lsh_attention.h.
#pragma once

#include <cstdint>

#include "attn/cuda/strided_tensor.h"

namespace attn::cuda {

// G = batch·heads sequences of N positions, R rounds, chunks of m places, C = ⌈N/m⌉ chunks a round. Arrays are contiguous.
struct LshParams {
  int64_t batch, heads, length, rounds, chunk, chunks;  // length = N, rounds = R, chunk = m, chunks = C
  int head_dim, value_dim;                              // D, M
  bool causal, trax;
  const int64_t* key_lengths;  // [batch], or null
  StridedTensor qk, v, output, grad_output, grad_qk, grad_v;
  int64_t* order;       // [G,R,N]: positions in the order of (bucket, position), hidden ones last
  double* log_sum_exp;  // [G,R,N] by position
  // Forward with several rounds: the output of the rounds so far, and their largest log-sum-exp with Σ exp(log-sum-exp −
  // largest).
  float* sums;     // [G,N,M]
  double* merged;  // [G,N,2]
  // Backward: the share of each round in the output, and sums of gradients, zeros at first: of x as a query, of the key made from
  // x, and of v.
  const float* shares;                        // [G,R,N] by position
  float *grad_query, *grad_key, *grad_value;  // [G,N,D], [G,N,D], [G,N,M]
};

// Rotations [R, D, columns]: a bucket is argmax [y; −y] of y = x·rotation over the first_half columns, plus 2·first_half times
// that over the second_half others, if there are any. Buckets are always those that float64 gives.
struct LshRotations {
  const double* exact;
  const float* rounded;
  int first_half, second_half;
  const float* longest;  // the length of the longest column; on the device, so that the host need not wait for it
};

}  // namespace attn::cuda
