// linear-cumsum: causal linear attention with the running sums S_i [D,M] of every position materialised.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/linear/method.h"
#include "attn/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class LinearCumsum : public AttentionMethod {
 public:
  Capabilities capabilities() const override {
    Capabilities can;
    can.full = can.cross_attention = false;
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    const double rows = double(p.batch) * double(p.heads) * double(p.query_len);
    const double state = double(p.head_dim) * double(p.value_dim), number = std::max(4.0, p.element_bytes());
    const bool backward = protocol == Protocol::forward_backward;
    const double forward = rows * 5 * state, least = p.input_bytes() + p.output_bytes();
    // The products and their running sums; backward those sums, their gradient, its running sum and the products' gradient.
    const double sums = rows * state * number, wide = number / p.element_bytes();
    const double features = wide * (p.query_bytes() + p.key_bytes() + p.output_bytes());
    return {backward ? 3 * forward : forward, backward ? 2 * least + p.input_bytes() : least,
            p.input_bytes() + (backward ? 2 * p.output_bytes() : p.output_bytes()) + features + (backward ? 4 : 2) * sums};
  }

  at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                       const at::Tensor& rows) const override {
    return reference::linear(q, k, v, mask, rows, *make_feature_map("elu"), kLinearEpsilon);
  }

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) override {
    ran("aten/cumsum");
    const auto hidden_keys = mask.hidden_keys(k.size(2));
    const auto sums = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto phi_q = at::elu(q.to(sums)) + 1;
    const auto phi_k = zero_where(at::elu(zero_where(k, hidden_keys).to(sums)) + 1, hidden_keys);
    const auto values = zero_where(v, hidden_keys).to(sums);
    const auto states = (phi_k.unsqueeze(4) * values.unsqueeze(3)).cumsum(2);  // [B,H,N,D,M]
    const auto normalizer = (phi_q * phi_k.cumsum(2)).sum(3, /*keepdim=*/true) + kLinearEpsilon;
    return (at::matmul(phi_q.unsqueeze(3), states).squeeze(3) / normalizer).to(q.scalar_type());
  }
};

const RegisterMethod registered{
    entry_of<LinearCumsum>("linear-cumsum", "causal linear attention with every running sum materialised", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
