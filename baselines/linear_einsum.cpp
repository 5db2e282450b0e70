// linear-einsum: non-causal linear attention written with einsum, as a user of PyTorch would write it.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/implementations.h"
#include "attn/linear/method.h"
#include "attn/linear/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class LinearEinsum : public AttentionMethod {
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
    const double forward = 2 * rows * double(p.head_dim) * double(p.value_dim + 1) * double(p.key_len + p.query_len);
    const bool backward = protocol == Protocol::forward_backward;
    const double min_bytes = p.input_bytes() + p.output_bytes();
    // The tensors that attend() makes: features of q and k and results, in the accumulator dtype, and masked copies of k and v.
    const double features = p.query_bytes() + p.key_bytes();
    const double widening = std::max(1.0, 4 / p.element_bytes());
    const double extra = widening * (features + (backward ? 4 : 2) * p.output_bytes()) +
                         (widening > 1 ? features + p.output_bytes() : 0) +
                         (p.key_lengths.is_full() ? 0 : p.key_bytes() + p.value_bytes());
    return {backward ? 3 * forward : forward, backward ? 2 * min_bytes + p.input_bytes() : min_bytes,
            p.input_bytes() + (backward ? p.output_bytes() : 0) + extra};
  }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    return reference::linear(inputs, rows, *make_feature_map("elu"), kLinearEpsilon);
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    ran("aten/einsum");
    const auto hidden_keys = inputs.mask.hidden_keys(inputs.k.size(2));
    const auto phi_q = elu_plus_one(inputs.q);
    const auto phi_k = zero_where(elu_plus_one(zero_where(inputs.k, hidden_keys)), hidden_keys);
    // The state and the sum of φ(k) are accumulated in float32 or float64, and einsum needs one dtype for all of its operands.
    const auto dtype = inputs.q.scalar_type(), wide = accumulator_dtype(dtype);
    const auto wide_q = phi_q.to(wide), wide_k = phi_k.to(wide);
    const auto state = at::einsum("bhld,bhlm->bhdm", {wide_k, zero_where(inputs.v, hidden_keys).to(wide)});
    const auto denominator = at::einsum("bhnd,bhd->bhn", {wide_q, wide_k.sum(2)}) + kLinearEpsilon;
    return at::einsum("bhnd,bhdm,bhn->bhnm", {wide_q, state, denominator.reciprocal()}).to(dtype);
  }
};

const RegisterMethod registered{
    entry_of<LinearEinsum>("linear-einsum", "non-causal linear attention written with einsum", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
