// efficient: Efficient Attention (arXiv 1812.01243), softmax(q) (softmax(k)ᵀ v), where the softmax of q is over the dimensions
// and the softmax of k over the positions.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "attn/implementations.h"
#include "attn/registry.h"

namespace attn {
namespace {

class Efficient : public AttentionMethod {
 public:
  Capabilities capabilities() const override {
    Capabilities can;
    can.shared_heads = SharedHeads::repeated;
    can.causal = false;
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    if (p.heads_are_shared()) return cost_with_repeated_heads(cost(p.with_all_heads(), protocol), p, protocol);
    const double rows = double(p.batch) * double(p.heads);
    const double forward = rows * double(p.head_dim) * (2 * double(p.value_dim) + 5) * double(p.key_len + p.query_len);
    const bool backward = protocol == Protocol::forward_backward;
    const double min_bytes = p.input_bytes() + p.output_bytes();
    // The peak counts the tensors that attend() makes: the softmax of q or of k, copies in the accumulator dtype, masked copies.
    const double widening = std::max(1.0, 4 / p.element_bytes()), weights = widening * (p.query_bytes() + p.key_bytes());
    const double widened = widening > 1 ? widening * (p.value_bytes() + p.output_bytes()) : 0;
    if (!backward) {
      const double masked = widening > 1 || p.key_lengths.is_full() ? 0 : p.key_bytes();
      return {forward, min_bytes,
              p.input_bytes() + p.output_bytes() + weights / 2 + widened + (widening > 1 ? weights / 2 : 0) + masked};
    }
    return {3 * forward, 2 * min_bytes + p.input_bytes(),
            2 * (p.input_bytes() + p.output_bytes()) + weights + widened + p.key_bytes()};
  }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    const auto hidden_keys = inputs.mask.hidden_keys(inputs.k.size(2));
    // The largest exponent is taken off, so that none overflows.
    const auto exp_of = [](const at::Tensor& x, int64_t dim) { return (x - x.detach().amax(dim, /*keepdim=*/true)).exp(); };
    const auto exp_q = exp_of(inputs.q.index_select(2, rows), 3);
    const auto exp_k = zero_where(exp_of(zero_where(inputs.k, hidden_keys), 2), hidden_keys);
    const auto total = exp_k.sum(2, /*keepdim=*/true);
    const auto weights = at::matmul(exp_q / exp_q.sum(3, /*keepdim=*/true),
                                    (exp_k / at::where(total == 0, at::ones_like(total), total)).transpose(2, 3));
    return at::matmul(weights, zero_where(inputs.v, hidden_keys));
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    ran("aten/matmul");
    const auto hidden_keys = inputs.mask.hidden_keys(inputs.k.size(2));
    const auto empty = inputs.mask.empty_rows(inputs.q.size(2), inputs.k.size(2), inputs.q.device());
    const auto dtype = inputs.q.scalar_type(), wide = accumulator_dtype(dtype);
    auto keys = inputs.k.to(wide);
    if (hidden_keys) keys = keys.masked_fill(*hidden_keys, -INFINITY);
    keys = zero_where(keys, empty);  // the softmax of a column that holds only -inf would be NaN
    const auto state = at::matmul(at::softmax(keys, 2).transpose(2, 3), zero_where(inputs.v, hidden_keys).to(wide));
    return at::matmul(at::softmax(inputs.q.to(wide), 3), state).to(dtype);
  }
};

const RegisterMethod registered{entry_of<Efficient>(
    "efficient", "Efficient Attention: softmax over the dimensions of q and over the positions of k", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
