// Computes the softmax of all visible pairs in float64.
#include "attn/reference.h"

#include <ATen/ATen.h>

#include <cmath>

namespace attn::reference {

namespace {

at::Tensor weights_of_pairs(const Inputs& inputs, const at::Tensor& rows, const at::Tensor& visible) {
  const auto hidden = visible.logical_not();
  const auto hidden_keys = inputs.mask.hidden_keys(inputs.k.size(2));
  const auto scale = 1 / std::sqrt(double(inputs.q.size(3)));
  const auto logits = at::matmul(inputs.q.index_select(2, rows), zero_where(inputs.k, hidden_keys).transpose(2, 3)) * scale;
  // The weights of a row are relative to its largest visible logit, so that exp does not overflow. All weights of a row that sees
  // no key are zero; its total is replaced by one.
  const auto sinks = inputs.sinks.defined() ? std::optional(inputs.sinks.view({1, -1, 1, 1})) : std::nullopt;
  auto max_logit = logits.detach().masked_fill(hidden, -1e300).amax(-1, /*keepdim=*/true);
  if (sinks) max_logit = max_logit.maximum(sinks->detach());
  const auto weights = (logits - max_logit).masked_fill(hidden, -INFINITY).exp();
  auto total = weights.sum(-1, /*keepdim=*/true);
  if (sinks) total = total + (*sinks - max_logit).exp();
  return weights / at::where(total == 0, at::ones_like(total), total);
}

}  // namespace

at::Tensor softmax_weights(const Inputs& inputs, const at::Tensor& rows) {
  return weights_of_pairs(inputs, rows, inputs.mask.visible_pairs(rows, inputs.q.size(2), inputs.k.size(2)));
}

at::Tensor softmax_of_pairs(const Inputs& inputs, const at::Tensor& rows, const at::Tensor& visible) {
  const auto values = zero_where(inputs.v, inputs.mask.hidden_keys(inputs.k.size(2)));
  return at::matmul(weights_of_pairs(inputs, rows, visible), values);
}

at::Tensor softmax(const Inputs& inputs, const at::Tensor& rows) {
  return softmax_of_pairs(inputs, rows, inputs.mask.visible_pairs(rows, inputs.q.size(2), inputs.k.size(2)));
}

}  // namespace attn::reference
