// LinearParams, the parameters of linear attention's CUDA kernels.
#pragma once

#include <cstdint>

#include "attn/cuda/strided_tensor.h"
#include "attn/linear/feature_map_kind.h"

namespace attn::cuda {

// Whether the CUDA kernels compute this feature map. A further map of single entries needs code in feature_map.cuh first.
constexpr bool computes_feature_map(FeatureMapKind map) {
  return map == FeatureMapKind::elu || map == FeatureMapKind::elu01 || map == FeatureMapKind::relu;
}

struct LinearParams {
  int64_t batch, heads, query_len, key_len;
  int head_dim, value_dim;
  bool causal;
  FeatureMapKind map;  // one that computes_feature_map() accepts
  float epsilon;
  const int64_t* key_lengths;  // [batch], or null
  StridedTensor q, k, v, output, grad_output, grad_q, grad_k, grad_v;
  // In the accumulator dtype: float32, or float64 for float64 elements.
  void* normalizer;       // [batch·heads, query_len]: φ·Z + ε
  void* grad_normalizer;  // [batch·heads, query_len]: δ
  // [batch·heads, value_shift_stride]: what the backward pass takes off each column of v (attn/linear/value_shift.h), with zeros
  // behind value_dim up to the dimension of the tiles. Null in the forward pass.
  const void* value_shift;
  int64_t value_shift_stride;
  // A pass is computed for `heads_at_once` heads of all batch entries at a time, so that what its first kernel reads is still in
  // the L2 cache when the next one reads it. The kernels with tensor cores compute the heads from first_head on. A sequence is
  // cut into `splits` splits of split_len positions; the last one may be shorter. `states` [heads_at_once, splits,
  // state_numbers(dim)] holds the state that each split begins with, S and Z, and `query_states`, in the backward pass only, R
  // and Y. They are null if a causal sequence is a single split, which begins with zeros.
  int64_t heads_at_once, first_head;
  int64_t split_len, splits;
  float *states, *query_states;
};

}  // namespace attn::cuda
