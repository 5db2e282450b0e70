// Calls kernels or the composed computation, and predicts the costs of both.
#include "attn/linear/method.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "attn/linear/composed.h"
#include "attn/linear/linear_attention.h"
#include "attn/linear/reference.h"

namespace attn {
namespace {

// The decoding state of the composed computation.
class ComposedState : public DecodingState {
 public:
  ComposedState(std::unique_ptr<const FeatureMap> feature_map, const Problem& p) : map_(std::move(feature_map)) {
    const auto options = at::TensorOptions(map_->accumulator_dtype(p.dtype)).device(p.device);
    state_ = LinearState::zeros(*map_, p.batch * p.heads, p.head_dim, p.value_dim, options);
  }

  // Adds tokens k [B,H,T,D] and v [B,H,T,M].
  void add(const at::Tensor& k, const at::Tensor& v) { state_.add(*map_, merged(k), merged(v)); }
  // The output of one query [B,H,1,D], as [B·H,1,M].
  at::Tensor output(const at::Tensor& q, double epsilon) const { return read(state_, *map_, merged(q), epsilon).output; }

 protected:
  std::vector<at::Tensor> tensors() const override {
    if (!state_.log_scale.defined()) return {state_.sums};
    return {state_.sums, state_.log_scale};
  }

 private:
  // [B,H,T,·] → [B·H,T,·] in the accumulator dtype.
  at::Tensor merged(const at::Tensor& x) const { return x.flatten(0, 1).to(state_.sums.scalar_type()); }

  std::unique_ptr<const FeatureMap> map_;
  LinearState state_;
};

// The decoding state of kernels.
class KernelState : public DecodingState {
 public:
  KernelState(const LinearImplementation& chosen, const Problem& p, int64_t features, bool scales) : implementation(chosen) {
    const auto options = at::TensorOptions(accumulator_dtype(p.dtype)).device(p.device);
    state.s = at::zeros({p.batch, p.heads, features, p.value_dim}, options);
    state.z = at::zeros({p.batch, p.heads, features + (scales ? 1 : 0)}, options);
    if (scales) state.z.narrow(2, features, 1).fill_(kNoScale);
  }

  bool steps_can_be_replayed() const override { return true; }

  const LinearImplementation& implementation;
  LinearDecodingState state;

 protected:
  std::vector<at::Tensor> tensors() const override { return {state.s, state.z}; }
};

}  // namespace

LinearMethod::LinearMethod(const std::string& feature_map, int64_t composed_chunk, std::string implementation)
    : feature_map_(parse_feature_map(feature_map)), composed_chunk_(composed_chunk), wanted_(std::move(implementation)) {}

std::optional<std::string> LinearMethod::why_unsupported(const Problem& p, Protocol protocol) const {
  if (auto reason = AttentionMethod::why_unsupported(p, protocol)) return reason;
  const auto request = request_for(p, protocol == Protocol::forward_backward);
  if (auto reason = implementations_.why_unsupported(label(), request)) return reason;
  const auto* const implementation = implementations_.find(request);
  const bool decodes = protocol == Protocol::prefill || protocol == Protocol::decode;
  // An implementation that the user named computes everything, or there is an error.
  if (decodes && implementation && implementation->name() == wanted_ && implementation->step_name() != wanted_)
    return label() + ": implementation '" + wanted_ + "' has no decoding step; use '" + implementation->step_name() + "'";
  return std::nullopt;
}

Capabilities LinearMethod::capabilities() const {
  Capabilities can;
  if (wanted_ == kComposedImplementation) can.shared_heads = SharedHeads::repeated;
  can.decoding = true;
  return can;
}

double LinearMethod::error_tolerance(at::ScalarType dtype) const {
  return AttentionMethod::error_tolerance(implementations_.precision(wanted_, dtype));
}

at::Tensor LinearMethod::reference(const Inputs& inputs, const at::Tensor& rows) const {
  return reference::linear(inputs, rows, *map_for(inputs.q.size(3)), kLinearEpsilon);
}

at::Tensor LinearMethod::attend(const Inputs& inputs) {
  const auto &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const auto& mask = inputs.mask;
  const auto* implementation = implementations_.find(
      {{wanted_, q.scalar_type(), q.device().type(), q.size(3), v.size(3), records_gradients({q, k, v}), q.device().index()},
       feature_map_});
  ran(implementation ? "kernel/" + implementation->name() : mask.causal ? "aten/chunked" : "aten/sums");
  return linear_attention(q, k, v,
                          {.causal = mask.causal,
                           .key_lengths = mask.key_lengths,
                           .feature_map = feature_map_name(feature_map_),
                           .epsilon = kLinearEpsilon,
                           .projection = projection(q.size(3)),
                           .chunk = composed_chunk_,
                           .implementation = implementation ? implementation->name() : kComposedImplementation});
}

std::unique_ptr<DecodingState> LinearMethod::make_state(const Problem& problem) const {
  auto map = map_for(problem.head_dim);
  if (const auto* implementation = implementation_for(problem, /*gradients=*/false))
    return std::make_unique<KernelState>(*implementation, problem, map->count(problem.head_dim), has_scales(map->update()));
  return std::make_unique<ComposedState>(std::move(map), problem);
}

void LinearMethod::absorb(DecodingState& state, const Inputs& tokens) {
  const auto &k = tokens.k, &v = tokens.v;
  constexpr int64_t kComposedTokens = 1024;  // tokens whose features the composed computation holds at once
  if (const auto* kernel = dynamic_cast<KernelState*>(&state))
    return kernel->implementation.add(k, v, kernel->state, spec_for(k.size(3)));
  auto& composed = static_cast<ComposedState&>(state);
  for (int64_t begin = 0; begin < k.size(2); begin += kComposedTokens) {
    const auto size = std::min(kComposedTokens, k.size(2) - begin);
    composed.add(k.narrow(2, begin, size), v.narrow(2, begin, size));
  }
}

at::Tensor LinearMethod::decode(DecodingState& state, const Inputs& token) {
  const auto &q = token.q, &k = token.k, &v = token.v;
  if (const auto* kernel = dynamic_cast<KernelState*>(&state)) {
    ran("kernel/" + kernel->implementation.step_name());
    return kernel->implementation.step(q, k, v, kernel->state, spec_for(q.size(3)), kLinearEpsilon);
  }
  ran("aten/recurrent");
  auto& composed = static_cast<ComposedState&>(state);
  composed.add(k, v);
  return composed.output(q, kLinearEpsilon).to(q.scalar_type()).view(v.sizes());
}

std::unique_ptr<BoundStep> LinearMethod::make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                                         int64_t workers) const {
  const auto* kernel = dynamic_cast<KernelState*>(&state);
  if (!kernel) return nullptr;
  return kernel->implementation.bind_step(token.q, token.k, token.v, output, kernel->state, spec_for(token.q.size(3)),
                                          kLinearEpsilon, workers);
}

std::optional<at::Tensor> RandomFeatureMethod::projection(int64_t head_dim) const {
  auto& drawn = drawn_[head_dim];
  if (!drawn.defined()) drawn = draw_orthogonal_directions(count_, head_dim, seed_);
  return drawn;
}

}  // namespace attn
