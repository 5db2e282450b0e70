// One call of linear attention, as its CUDA kernels take it.
#pragma once

#include <cstdint>

namespace attn::cuda {

enum class LinearMapKind { elu, elu01, relu };

// [batch, heads, positions, dim], the entries of a row side by side; strides in elements.
struct Tensor4 {
  void* data;
  int64_t batch_stride, head_stride, row_stride;
};

struct LinearCall {
  int64_t batch, heads, query_len, key_len;
  int head_dim, value_dim;
  bool causal;
  LinearMapKind map;
  float epsilon;
  const int64_t* key_lengths;  // [batch], or null
  Tensor4 q, k, v, output, gradient, q_gradient, k_gradient, v_gradient;
  // In the sums' type: float32, or float64 for float64 elements.
  void* normalizer;           // [batch·heads, query_len]: φ·Z + ε
  void* normalizer_gradient;  // the same: δ
  // Positions are taken in splits, each of so many but the last. What each split begins with, [batch·heads, splits,
  // state_numbers], of keys and later, in backward, of queries; null where a sequence is one split.
  int64_t split_len, splits;
  float* states;
};

}  // namespace attn::cuda
