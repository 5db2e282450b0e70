// Runs the recurrence in float64, one position after the other.
#include "attn/recurrent/reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "attn/recurrent/definition.h"

namespace attn::reference {
namespace {

using at::Tensor;
using Tensors = torch::autograd::variable_list;

// Rows of q, k and v, and the gates, of some positions; q and k are scaled and normalized.
struct Positions {
  Tensor q, k, v, g, beta;
};

// The outputs [B,H,T,M] of some positions, by the definition; `state` [B,H,K,M] changes from the state before to that after them.
Tensor run(const Positions& p, bool delta, Tensor& state) {
  std::vector<Tensor> outputs;
  for (int64_t t = 0; t < p.q.size(2); ++t) {
    const auto row = [&](const Tensor& x) { return x.narrow(2, t, 1); };
    const auto gate = [&](const Tensor& x) { return x.narrow(2, t, 1).unsqueeze(3); };  // [B,H,1,1]
    // Nothing passes a decay of −∞, not even a gradient of the decay.
    if (p.g.defined()) state = state * at::exp(p.g.dim() == 4 ? row(p.g).transpose(2, 3) : gate(p.g));
    auto u = row(p.v);
    if (delta) u = u - at::matmul(row(p.k), state);
    if (p.beta.defined()) u = gate(p.beta) * u;
    state = state + row(p.k).transpose(2, 3) * u;
    outputs.push_back(at::matmul(row(p.q), state));
  }
  return at::cat(outputs, 2);
}

// run() over a whole sequence. It keeps the state before every kSegment positions alone, from which the backward pass computes
// the others again.
class TokenByTokenRecurrence : public torch::autograd::Function<TokenByTokenRecurrence> {
  static constexpr int64_t kSegment = 128;
  using Context = torch::autograd::AutogradContext;

  static Positions segment_of(const Tensors& all, int64_t segment) {
    const auto part = [&](const Tensor& x) {
      const auto begin = segment * kSegment;
      return x.defined() ? x.narrow(2, begin, std::min(kSegment, x.size(2) - begin)) : x;
    };
    return {part(all[0]), part(all[1]), part(all[2]), part(all[3]), part(all[4])};
  }

 public:
  static Tensor forward(Context* context, const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& g,
                        const std::optional<Tensor>& beta, bool delta) {
    Tensors saved{q, k, v, g.value_or(Tensor()), beta.value_or(Tensor())};
    auto state = at::zeros({q.size(0), q.size(1), q.size(3), v.size(3)}, q.options());
    std::vector<Tensor> outputs;
    for (int64_t segment = 0; segment * kSegment < q.size(2); ++segment) {
      saved.push_back(state);
      outputs.push_back(run(segment_of(saved, segment), delta, state));
    }
    context->save_for_backward(saved);
    context->saved_data["delta"] = delta;
    return outputs.empty() ? at::zeros_like(v) : at::cat(outputs, 2);
  }

  static Tensors backward(Context* context, const Tensors& grad_outputs) {
    const auto saved = context->get_saved_variables();
    const auto delta = context->saved_data["delta"].toBool();
    Tensors gradients;
    for (size_t i = 0; i < 5; ++i) gradients.push_back(saved[i].defined() ? at::zeros_like(saved[i]) : Tensor());
    const at::AutoGradMode enabled(true);
    Tensor grad_state;
    for (auto segment = int64_t(saved.size()) - 6; segment >= 0; --segment) {
      auto positions = segment_of(saved, segment);
      auto before = saved[size_t(5 + segment)].detach().requires_grad_(true);
      Tensors leaves{before};
      for (auto* x : {&positions.q, &positions.k, &positions.v, &positions.g, &positions.beta})
        if (x->defined()) leaves.push_back(*x = x->detach().requires_grad_(true));
      auto state = before;
      Tensors results{run(positions, delta, state)};
      Tensors grad_results{grad_outputs[0].narrow(2, segment * kSegment, positions.q.size(2))};
      if (grad_state.defined()) results.push_back(state), grad_results.push_back(grad_state);
      const auto found = torch::autograd::grad(results, leaves, grad_results);
      grad_state = found[0];
      size_t next = 1;
      for (auto& gradient : gradients)
        if (gradient.defined()) gradient.narrow(2, segment * kSegment, positions.q.size(2)).copy_(found[next++]);
    }
    gradients.emplace_back();
    return gradients;
  }
};

}  // namespace

Tensor recurrent(const Inputs& inputs, const Tensor& rows, const RecurrentDefinition& definition) {
  const auto used = [&](const Tensor& x) {
    return definition.normalize ? x / at::sqrt(x.square().sum(-1, /*keepdim=*/true) + kLengthEpsilon) : x;
  };
  const auto last = rows.numel() == 0 ? 0 : rows.max().item<int64_t>() + 1;
  const auto seen = inputs.tokens(0, last);  // later positions change no row
  const auto given = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  const auto output = TokenByTokenRecurrence::apply(used(seen.q) * definition.scale, used(seen.k), seen.v, given(seen.g),
                                                    given(seen.beta), definition.delta);
  return output.index_select(2, rows);
}

}  // namespace attn::reference
