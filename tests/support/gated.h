// A method for tests that reads a further tensor: causal linear attention without feature map or normalizer whose state decays,
// S_i = e^(g_i) S_(i-1) + k_i v_iᵀ and out_i = q_iᵀ S_i. Without g nothing decays.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "attn/implementations.h"
#include "attn/registry.h"

namespace attn {

class Gated : public AttentionMethod {
 public:
  explicit Gated(bool drops_gradient = false) : drops_gradient_(drops_gradient) {}

  Capabilities capabilities() const override {
    Capabilities can;
    can.inputs.push_back(find_input("g"));
    can.full = can.cross_attention = can.key_lengths = false;
    can.decoding = true;
    can.nan_reaches_its_rows_only = false;
    can.dtypes = {at::kFloat, at::kDouble, at::kBFloat16};  // sums of products can be beyond the range of float16
    return can;
  }
  Cost cost(const Problem& p, Protocol protocol) const override {
    const auto tensors = p.input_bytes() + find_input("g").bytes(p) + p.output_bytes();
    const double scale = protocol == Protocol::forward ? 1 : 2, weights = scale * p.score_count();
    return {4 * weights * double(p.head_dim), scale * tensors, scale * tensors + 3 * 4 * weights};
  }
  double state_bytes(const Problem& p, int64_t) const override {
    return double(p.batch * p.heads * p.head_dim * p.value_dim) * double(c10::elementSize(accumulator_dtype(p.dtype)));
  }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    auto state = at::zeros({inputs.q.size(0), inputs.q.size(1), inputs.q.size(3), inputs.v.size(3)}, inputs.q.options());
    std::vector<at::Tensor> outputs;
    for (int64_t i = 0; i < inputs.q.size(2); ++i) outputs.push_back(advance(state, inputs.tokens(i, 1)));
    return at::cat(outputs, 2).index_select(2, rows);
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    ran("test");
    const auto dtype = accumulator_dtype(inputs.q.scalar_type());
    auto weights = at::matmul(inputs.q.to(dtype), inputs.k.to(dtype).transpose(2, 3));
    if (inputs.g.defined()) {
      const auto total = (drops_gradient_ ? inputs.g.detach() : inputs.g).cumsum(2);
      const auto hidden = inputs.mask.hidden_pairs(inputs.q.size(2), inputs.k.size(2), inputs.q.device());
      weights = weights * (total.unsqueeze(3) - total.unsqueeze(2)).masked_fill(*hidden, 0).exp();
    }
    return at::matmul(weights.tril(), inputs.v.to(dtype)).to(inputs.q.scalar_type());
  }

  class State : public DecodingState {
   public:
    explicit State(at::Tensor sums) : s(std::move(sums)) {}
    at::Tensor s;  // [B,H,D,M] in the accumulator dtype

   protected:
    std::vector<at::Tensor> tensors() const override { return {s}; }
  };

  std::unique_ptr<DecodingState> make_state(const Problem& p) const override {
    return std::make_unique<State>(
        at::zeros({p.batch, p.heads, p.head_dim, p.value_dim}, at::TensorOptions(accumulator_dtype(p.dtype)).device(p.device)));
  }
  void absorb(DecodingState& state, const Inputs& tokens) override {
    for (int64_t i = 0; i < tokens.q.size(2); ++i) advance(static_cast<State&>(state).s, tokens.tokens(i, 1));
  }
  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    ran("test");
    return advance(static_cast<State&>(state).s, token).to(token.q.scalar_type());
  }

 private:
  // Adds one token to the state and returns its output, in the dtype of the state.
  static at::Tensor advance(at::Tensor& state, const Inputs& token) {
    const auto q = token.q.to(state.scalar_type()), k = token.k.to(state.scalar_type()), v = token.v.to(state.scalar_type());
    if (token.g.defined()) state = state * token.g.exp().unsqueeze(3);
    state = state + at::matmul(k.transpose(2, 3), v);
    return at::matmul(q, state);
  }

  bool drops_gradient_;
};

inline const RegisterMethod gated{{"test-gated", "linear attention whose state decays", "O(N²)", "O(N²)", {}, [](const Options&) {
                                     return std::make_shared<Gated>();
                                   }}};

}  // namespace attn
