// Computes the recurrence in float64, one position after the other, and its derivative from the last position to the first.
#include "attn/recurrent/reference.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "attn/recurrent/definition.h"

namespace attn::reference {
namespace {

using at::Tensor;
using Tensors = torch::autograd::variable_list;

// The number of positions between two states that the forward pass keeps. The backward pass computes the others again.
constexpr int64_t kSegment = 128;

struct Sizes {
  int64_t heads, positions, features, columns;  // `heads` counts the heads of all batch entries
  int64_t decays;                               // how many decays a position has: 0, 1, or one for each feature
  bool delta, has_beta;

  int64_t state() const { return features * columns; }
  int64_t segments() const { return (positions + kSegment - 1) / kSegment; }
};

// The rows of one position of a head. q is scaled, and q and k are normalized if the method does so. `decays` and `beta` are null
// if there are none.
template <class Number>
struct Position {
  Number *q, *k, *v, *decays, *beta;
};

// The contiguous tensors of all heads.
template <class Number>
struct Pointers {
  Number *q = nullptr, *k = nullptr, *v = nullptr, *decays = nullptr, *beta = nullptr;

  Position<Number> at(const Sizes& sizes, int64_t head, int64_t position) const {
    const auto row = head * sizes.positions + position;
    return {q + row * sizes.features, k + row * sizes.features, v + row * sizes.columns,
            decays ? decays + row * sizes.decays : nullptr, beta ? beta + row : nullptr};
  }
};

Pointers<const double> pointers_of(const Tensors& all) {
  const auto of = [](const Tensor& x) { return x.defined() ? x.const_data_ptr<double>() : nullptr; };
  return {of(all[0]), of(all[1]), of(all[2]), of(all[3]), of(all[4])};
}

Pointers<double> mutable_pointers_of(const Tensors& all) {
  const auto of = [](const Tensor& x) { return x.defined() ? x.mutable_data_ptr<double>() : nullptr; };
  return {of(all[0]), of(all[1]), of(all[2]), of(all[3]), of(all[4])};
}

// The scalar product of two rows. Four independent sums let the processor add at the same time.
double dot(const double* a, const double* b, int64_t count) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (int64_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// sum += factor · row
void add(double* sum, double factor, const double* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * row[i];
}

// S ← e^g S
void let_decay(const Sizes& sizes, const Position<const double>& at, double* state) {
  if (!at.decays) return;
  double factor = std::exp(at.decays[0]);
  for (int64_t i = 0; i < sizes.features; ++i) {
    if (sizes.decays > 1) factor = std::exp(at.decays[i]);
    for (int64_t j = 0; j < sizes.columns; ++j) state[i * sizes.columns + j] *= factor;
  }
}

// Sets `change` [columns] to v or, with the delta rule, to v − Sᵀk, where S is the decayed state.
void compute_change(const Sizes& sizes, const Position<const double>& at, const double* state, double* change) {
  std::copy_n(at.v, sizes.columns, change);
  if (!sizes.delta) return;
  for (int64_t i = 0; i < sizes.features; ++i) add(change, -at.k[i], state + i * sizes.columns, sizes.columns);
}

// S ← S + k (β · change)ᵀ
void update(const Sizes& sizes, const Position<const double>& at, const double* change, double* state) {
  const auto beta = at.beta ? *at.beta : 1;
  for (int64_t i = 0; i < sizes.features; ++i) add(state + i * sizes.columns, beta * at.k[i], change, sizes.columns);
}

// Computes the outputs of a head, and the states before its segments.
void run_head(const Sizes& sizes, const Pointers<const double>& inputs, int64_t head, double* outputs, double* states) {
  std::vector<double> state(size_t(sizes.state())), change(size_t(sizes.columns));
  for (int64_t t = 0; t < sizes.positions; ++t) {
    if (t % kSegment == 0) states = std::copy(state.begin(), state.end(), states);
    const auto at = inputs.at(sizes, head, t);
    let_decay(sizes, at, state.data());
    compute_change(sizes, at, state.data(), change.data());
    update(sizes, at, change.data(), state.data());
    auto* output = outputs + t * sizes.columns;
    for (int64_t i = 0; i < sizes.features; ++i) add(output, at.q[i], state.data() + i * sizes.columns, sizes.columns);
  }
}

// What the derivative of a position needs: the state after its decay, and `change`.
struct Kept {
  std::vector<double> state, change;
};

// Computes the gradients of a position. `grad` [features, columns] is the gradient of the state after it, and becomes that of the
// state before it.
void differentiate(const Sizes& sizes, const Position<const double>& at, const Kept& kept, const double* grad_output,
                   const Position<double>& grads, double* grad) {
  const auto columns = sizes.columns;
  const auto beta = at.beta ? *at.beta : 1;
  // output = Sᵀq with S = kept.state + k (β · change)ᵀ
  const auto written = beta * dot(kept.change.data(), grad_output, columns);
  std::vector<double> grad_change(size_t(columns), 0);  // the gradient of β · change
  for (int64_t i = 0; i < sizes.features; ++i) {
    auto* row = grad + i * columns;
    grads.q[i] = dot(&kept.state[size_t(i * columns)], grad_output, columns) + at.k[i] * written;
    add(row, at.q[i], grad_output, columns);
    grads.k[i] = beta * dot(row, kept.change.data(), columns);
    add(grad_change.data(), at.k[i], row, columns);
  }
  if (grads.beta) *grads.beta = dot(grad_change.data(), kept.change.data(), columns);
  for (int64_t j = 0; j < columns; ++j) grads.v[j] = grad_change[size_t(j)] *= beta;
  for (int64_t i = 0; i < sizes.features; ++i) {
    auto* row = grad + i * columns;
    const auto* state = &kept.state[size_t(i * columns)];
    if (sizes.delta) {
      grads.k[i] -= dot(state, grad_change.data(), columns);
      add(row, -at.k[i], grad_change.data(), columns);
    }
    // The derivative of e^g S by g is e^g S, so a decay of −∞ has the gradient 0.
    if (at.decays) grads.decays[sizes.decays == 1 ? 0 : i] += dot(row, state, columns);
  }
  let_decay(sizes, at, grad);
}

// Computes the gradients of a head; `states` are those that run_head() has stored.
void differentiate_head(const Sizes& sizes, const Pointers<const double>& inputs, int64_t head, const double* states,
                        const double* grad_outputs, const Pointers<double>& grads) {
  std::vector<double> grad(size_t(sizes.state())), state(size_t(sizes.state()));
  std::vector<Kept> kept(size_t(std::min(kSegment, sizes.positions)),
                         {std::vector<double>(size_t(sizes.state())), std::vector<double>(size_t(sizes.columns))});
  for (auto segment = sizes.segments() - 1; segment >= 0; --segment) {
    const auto begin = segment * kSegment, end = std::min(begin + kSegment, sizes.positions);
    std::copy_n(states + segment * sizes.state(), sizes.state(), state.begin());
    for (auto t = begin; t < end; ++t) {
      const auto at = inputs.at(sizes, head, t);
      auto& [decayed, change] = kept[size_t(t - begin)];
      let_decay(sizes, at, state.data());
      decayed = state;
      compute_change(sizes, at, state.data(), change.data());
      update(sizes, at, change.data(), state.data());
    }
    for (auto t = end - 1; t >= begin; --t)
      differentiate(sizes, inputs.at(sizes, head, t), kept[size_t(t - begin)], grad_outputs + t * sizes.columns,
                    grads.at(sizes, head, t), grad.data());
  }
}

class TokenByTokenRecurrence : public torch::autograd::Function<TokenByTokenRecurrence> {
  using Context = torch::autograd::AutogradContext;

  static Sizes sizes_of(const Tensors& all, bool delta) {
    const auto &q = all[0], &v = all[2], &g = all[3];
    const auto decays = !g.defined() ? 0 : g.dim() == 4 ? q.size(3) : 1;
    return {q.size(0) * q.size(1), q.size(2), q.size(3), v.size(3), decays, delta, all[4].defined()};
  }

 public:
  static Tensor forward(Context* context, const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& g,
                        const std::optional<Tensor>& beta, bool delta) {
    Tensors saved{q.contiguous(), k.contiguous(), v.contiguous(), g ? g->contiguous() : Tensor(),
                  beta ? beta->contiguous() : Tensor()};
    const auto sizes = sizes_of(saved, delta);
    auto output = at::zeros_like(saved[2]);
    const auto states = at::empty({sizes.heads, sizes.segments(), sizes.features, sizes.columns}, q.options());
    const auto inputs = pointers_of(saved);
    auto *outputs = output.mutable_data_ptr<double>(), *kept = states.mutable_data_ptr<double>();
    at::parallel_for(0, sizes.heads, 1, [&](int64_t begin, int64_t end) {
      for (auto head = begin; head < end; ++head)
        run_head(sizes, inputs, head, outputs + head * sizes.positions * sizes.columns,
                 kept + head * sizes.segments() * sizes.state());
    });
    saved.push_back(states);
    context->save_for_backward(saved);
    context->saved_data["delta"] = delta;
    return output;
  }

  static Tensors backward(Context* context, const Tensors& grad_outputs) {
    const auto saved = context->get_saved_variables();
    const auto sizes = sizes_of(saved, context->saved_data["delta"].toBool());
    const auto grad_output = grad_outputs[0].contiguous();
    Tensors gradients;
    for (size_t i = 0; i < 5; ++i) gradients.push_back(saved[i].defined() ? at::zeros_like(saved[i]) : Tensor());
    const auto inputs = pointers_of(saved);
    const auto grads = mutable_pointers_of(gradients);
    const auto *states = saved[5].const_data_ptr<double>(), *of_outputs = grad_output.const_data_ptr<double>();
    at::parallel_for(0, sizes.heads, 1, [&](int64_t begin, int64_t end) {
      for (auto head = begin; head < end; ++head)
        differentiate_head(sizes, inputs, head, states + head * sizes.segments() * sizes.state(),
                           of_outputs + head * sizes.positions * sizes.columns, grads);
    });
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
  const auto seen = inputs.tokens(0, last);  // Later positions do not change these rows.
  const auto given = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  const auto output = TokenByTokenRecurrence::apply(used(seen.q) * definition.scale, used(seen.k), seen.v, given(seen.g),
                                                    given(seen.beta), definition.delta);
  return output.index_select(2, rows);
}

}  // namespace attn::reference
