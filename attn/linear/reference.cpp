// Computes the weights of all pairs in float64, and divides by their sums.
#include "attn/linear/reference.h"

#include <ATen/ATen.h>

namespace attn::reference {
namespace {

// The weights w_ij of the rows i and all keys j, [B,H,R,L]; zero where the mask hides the pair.
at::Tensor kernel_weights(const Inputs& inputs, const at::Tensor& rows, const FeatureMap& feature_map) {
  const auto key_len = inputs.k.size(2);
  const auto keys = zero_where(inputs.k, inputs.mask.hidden_keys(key_len));
  const auto hidden = inputs.mask.visible_pairs(rows, inputs.q.size(2), key_len).logical_not();
  return feature_map.kernel(inputs.q.index_select(2, rows), keys, hidden).masked_fill(hidden, 0);
}

}  // namespace

at::Tensor linear(const Inputs& inputs, const at::Tensor& rows, const FeatureMap& feature_map, double epsilon) {
  const auto weights = kernel_weights(inputs, rows, feature_map);
  const auto values = zero_where(inputs.v, inputs.mask.hidden_keys(inputs.v.size(2)));
  return at::matmul(weights, values) / (weights.sum(-1, /*keepdim=*/true) + epsilon);
}

at::Tensor linear_denominator(const Inputs& inputs, const at::Tensor& rows, const FeatureMap& feature_map, double epsilon) {
  return kernel_weights(inputs, rows, feature_map).sum(-1, /*keepdim=*/true) + epsilon;
}

}  // namespace attn::reference
