// linear-cumsum: causal linear attention that materialises the running sum S_i = Σ_{j≤i} φ(k_j) v_jᵀ [D,M] of every position i.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/implementations.h"
#include "attn/linear/method.h"
#include "attn/linear/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class LinearCumsum : public AttentionMethod {
 public:
  Capabilities capabilities() const override {
    Capabilities can;
    can.shared_heads = SharedHeads::repeated;
    can.full = can.cross_attention = false;
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    if (p.heads_are_shared()) return cost_with_repeated_heads(cost(p.with_all_heads(), protocol), p, protocol);
    const double rows = double(p.batch) * double(p.heads) * double(p.query_len);
    const double state = double(p.head_dim) * double(p.value_dim), accumulator_bytes = std::max(4.0, p.element_bytes());
    const bool backward = protocol == Protocol::forward_backward;
    const double forward = rows * 5 * state, min_bytes = p.input_bytes() + p.output_bytes();
    // The forward pass holds the products φ(k_j) v_jᵀ and their running sums. The backward pass holds those sums, their gradient,
    // the running sum of that gradient, and the gradient of the products.
    const double sums = rows * state * accumulator_bytes, widening = accumulator_bytes / p.element_bytes();
    const double features = widening * (p.query_bytes() + p.key_bytes() + p.output_bytes());
    return {backward ? 3 * forward : forward, backward ? 2 * min_bytes + p.input_bytes() : min_bytes,
            p.input_bytes() + (backward ? 2 * p.output_bytes() : p.output_bytes()) + features + (backward ? 4 : 2) * sums};
  }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    return reference::linear(inputs, rows, *make_feature_map("elu"), kLinearEpsilon);
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    ran("aten/cumsum");
    const auto hidden_keys = inputs.mask.hidden_keys(inputs.k.size(2));
    const auto dtype = inputs.q.scalar_type(), wide = accumulator_dtype(dtype);
    const auto phi_q = elu_plus_one(inputs.q.to(wide));
    const auto phi_k = zero_where(elu_plus_one(zero_where(inputs.k, hidden_keys).to(wide)), hidden_keys);
    const auto values = zero_where(inputs.v, hidden_keys).to(wide);
    const auto states = (phi_k.unsqueeze(4) * values.unsqueeze(3)).cumsum(2);  // [B,H,N,D,M]
    const auto normalizer = (phi_q * phi_k.cumsum(2)).sum(3, /*keepdim=*/true) + kLinearEpsilon;
    return (at::matmul(phi_q.unsqueeze(3), states).squeeze(3) / normalizer).to(dtype);
  }
};

const RegisterMethod registered{entry_of<LinearCumsum>(
    "linear-cumsum", "causal linear attention that materialises the running sum of every position", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
