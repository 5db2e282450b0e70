#include "attn/reference.h"

#include <ATen/ATen.h>

#include <cmath>

namespace attn::reference {

at::Tensor softmax_weights(const Inputs& inputs, const at::Tensor& rows) {
  const auto key_len = inputs.k.size(2);
  const auto hidden_keys = inputs.mask.hidden_keys(key_len);
  const auto hidden = inputs.mask.visible_pairs(rows, inputs.q.size(2), key_len).logical_not();
  const auto scale = 1 / std::sqrt(double(inputs.q.size(3)));
  const auto logits = at::matmul(inputs.q.index_select(2, rows), zero_where(inputs.k, hidden_keys).transpose(2, 3)) * scale;
  // The weights of a row are relative to its largest visible logit, so that exp does not overflow. All weights of a row that sees
  // no key are zero; its total is replaced by one.
  const auto max_logit = logits.detach().masked_fill(hidden, -1e300).amax(-1, /*keepdim=*/true);
  const auto weights = (logits - max_logit).masked_fill(hidden, -INFINITY).exp();
  const auto total = weights.sum(-1, /*keepdim=*/true);
  return weights / at::where(total == 0, at::ones_like(total), total);
}

at::Tensor softmax(const Inputs& inputs, const at::Tensor& rows) {
  return at::matmul(softmax_weights(inputs, rows), zero_where(inputs.v, inputs.mask.hidden_keys(inputs.k.size(2))));
}

}  // namespace attn::reference
