#include "attn/reference.h"

#include <ATen/ATen.h>

#include <cmath>

namespace attn::reference {
namespace {

// bool [B or 1,1,R or 1,L]: may the query at rows[r] see key l?
at::Tensor visible(const Mask& mask, const at::Tensor& rows, int64_t key_len) {
  const auto keys = at::arange(key_len, rows.options());
  auto seen = at::ones({1, 1, 1, key_len}, rows.options().dtype(at::kBool));
  if (mask.causal) seen = seen.logical_and(keys.view({1, 1, 1, -1}) <= rows.view({1, 1, -1, 1}));
  if (mask.key_lengths) seen = seen.logical_and(keys.view({1, 1, 1, -1}) < mask.key_lengths->view({-1, 1, 1, 1}));
  return seen;
}

}  // namespace

at::Tensor softmax(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask, const at::Tensor& rows) {
  const auto hidden_keys = mask.hidden_keys(k.size(2));
  const auto seen = visible(mask, rows, k.size(2));
  const auto scale = 1 / std::sqrt(double(q.size(3)));
  const auto logits = at::matmul(q.index_select(2, rows), zero_where(k, hidden_keys).transpose(2, 3)) * scale;
  // Weights relative to each row's largest visible logit; a row that sees nothing has only zeros, divided by one.
  const auto largest = logits.detach().masked_fill(~seen, -1e300).amax(-1, /*keepdim=*/true);
  const auto weights = (logits - largest).masked_fill(~seen, -INFINITY).exp();
  const auto total = weights.sum(-1, /*keepdim=*/true);
  return at::matmul(weights, zero_where(v, hidden_keys)) / at::where(total == 0, at::ones_like(total), total);
}

namespace {

at::Tensor kernel_weights(const at::Tensor& q, const at::Tensor& k, const Mask& mask, const at::Tensor& rows,
                          const FeatureMap& feature_map) {
  const auto keys = zero_where(k, mask.hidden_keys(k.size(2)));
  return feature_map.kernel(q.index_select(2, rows), keys).masked_fill(~visible(mask, rows, k.size(2)), 0);
}

}  // namespace

at::Tensor linear(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask, const at::Tensor& rows,
                  const FeatureMap& feature_map, double epsilon) {
  const auto weights = kernel_weights(q, k, mask, rows, feature_map);
  return at::matmul(weights, zero_where(v, mask.hidden_keys(k.size(2)))) / (weights.sum(-1, /*keepdim=*/true) + epsilon);
}

at::Tensor linear_denominator(const at::Tensor& q, const at::Tensor& k, const Mask& mask, const at::Tensor& rows,
                              const FeatureMap& feature_map, double epsilon) {
  return kernel_weights(q, k, mask, rows, feature_map).sum(-1, /*keepdim=*/true) + epsilon;
}

}  // namespace attn::reference
