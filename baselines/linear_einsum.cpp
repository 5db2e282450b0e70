// linear-einsum: non-causal linear attention as a PyTorch user writes it, in einsum.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/linear/method.h"
#include "attn/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class LinearEinsum : public AttentionMethod {
 public:
  Capabilities capabilities() const override {
    Capabilities can;
    can.causal = false;
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    const double rows = double(p.batch) * double(p.heads);
    const double forward = 2 * rows * double(p.head_dim) * double(p.value_dim + 1) * double(p.key_len + p.query_len);
    const bool backward = protocol == Protocol::forward_backward;
    const double least = p.input_bytes() + p.output_bytes();
    // Counted on the composition: features and products of the size of the inputs, in the type of the sums.
    const double features = p.query_bytes() + p.key_bytes();
    const double wide = std::max(1.0, 4 / p.element_bytes());
    const double extra = wide * (features + (backward ? 4 : 2) * p.output_bytes()) +
                         (wide > 1 ? features + p.output_bytes() : 0) +
                         (p.key_lengths.is_full() ? 0 : p.key_bytes() + p.value_bytes());
    return {backward ? 3 * forward : forward, backward ? 2 * least + p.input_bytes() : least,
            p.input_bytes() + (backward ? p.output_bytes() : 0) + extra};
  }

  at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                       const at::Tensor& rows) const override {
    return reference::linear(q, k, v, mask, rows, *make_feature_map("elu"), kLinearEpsilon);
  }

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) override {
    ran("aten/einsum");
    const auto hidden_keys = mask.hidden_keys(k.size(2));
    const auto phi_q = at::elu(q) + 1;
    const auto phi_k = zero_where(at::elu(zero_where(k, hidden_keys)) + 1, hidden_keys);
    // State and sum of keys in float32 whatever the inputs; einsum wants one type on both sides.
    const auto sums = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto wide_q = phi_q.to(sums), wide_k = phi_k.to(sums);
    const auto state = at::einsum("bhld,bhlm->bhdm", {wide_k, zero_where(v, hidden_keys).to(sums)});
    const auto denominator = at::einsum("bhnd,bhd->bhn", {wide_q, wide_k.sum(2)}) + kLinearEpsilon;
    return at::einsum("bhnd,bhdm,bhn->bhnm", {wide_q, state, denominator.reciprocal()}).to(q.scalar_type());
  }
};

const RegisterMethod registered{
    entry_of<LinearEinsum>("linear-einsum", "non-causal linear attention written in einsum", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
