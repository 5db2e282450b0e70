#include "attn/agreement.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

// Each stretch of numbers has a generator of its own, so that threads can share the work.
constexpr int64_t kStretch = 1 << 20;

constexpr int64_t kLongLength = 1 << 14;

at::Tensor normal(const std::vector<int64_t>& shape, const Problem& problem, uint64_t seed) {
  const auto drawn_in = problem.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const auto flat = at::empty(shape, drawn_in).view(-1);
  at::parallel_for(0, (flat.numel() + kStretch - 1) / kStretch, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) {
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed * 0x9E3779B97F4A7C15u + uint64_t(i));
      flat.narrow(0, i * kStretch, std::min(kStretch, flat.numel() - i * kStretch)).normal_(0, 1, generator);
    }
  });
  return flat.view(shape).to(at::TensorOptions(problem.dtype).device(problem.device));
}

at::Tensor select(const at::Tensor& x, const Selection& selection) {
  return x.index({selection.batch.view({-1, 1}), selection.heads.view({1, -1})});
}

double largest_entry(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }

Agreement compare_tensor(const std::string& name, const at::Tensor& result, const at::Tensor& reference, double least_scale) {
  Agreement agreement;
  agreement.worst = name;
  if (reference.numel() == 0) return agreement;
  const auto scale = std::max(largest_entry(reference), least_scale);
  agreement.max_abs_error = largest_entry(result.to(at::kDouble) - reference);
  agreement.max_rel_error = agreement.max_abs_error / (scale > 0 ? scale : 1);
  agreement.finite = std::isfinite(agreement.max_abs_error);
  return agreement;
}

bool all_finite(const at::Tensor& x) {
  if (!x.defined() || x.numel() == 0) return true;
  const auto [least, most] = at::aminmax(x.detach());  // a NaN anywhere makes both NaN
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

}  // namespace

Inputs make_inputs(const Problem& p, Protocol protocol, uint64_t seed) {
  p.validate();
  Inputs inputs;
  inputs.q = normal({p.batch, p.heads, p.query_len, p.head_dim}, p, 4 * seed);
  inputs.k = normal({p.batch, p.heads, p.key_len, p.head_dim}, p, 4 * seed + 1);
  inputs.v = normal({p.batch, p.heads, p.key_len, p.value_dim}, p, 4 * seed + 2);
  inputs.mask = Mask::from(p, at::make_generator<at::CPUGeneratorImpl>(seed));
  if (protocol == Protocol::forward_backward) {
    inputs.output_gradient = normal({p.batch, p.heads, p.query_len, p.value_dim}, p, 4 * seed + 3);
    for (auto* input : {&inputs.q, &inputs.k, &inputs.v}) input->set_requires_grad(true);
  }
  return inputs;
}

Results call(AttentionMethod& method, const Inputs& inputs, Protocol protocol) {
  if (protocol == Protocol::forward) {
    const at::NoGradGuard no_grad;
    return {method.forward(inputs.q, inputs.k, inputs.v, inputs.mask), {}, {}, {}};
  }
  Results results;
  results.output = method.forward(inputs.q, inputs.k, inputs.v, inputs.mask);
  auto gradients = torch::autograd::grad({results.output}, {inputs.q, inputs.k, inputs.v}, {inputs.output_gradient},
                                         /*retain_graph=*/std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
  results.output = results.output.detach();
  const auto or_zeros = [](const at::Tensor& gradient, const at::Tensor& input) {
    return gradient.defined() ? gradient : at::zeros_like(input);
  };
  results.q_gradient = or_zeros(gradients[0], inputs.q);
  results.k_gradient = or_zeros(gradients[1], inputs.k);
  results.v_gradient = or_zeros(gradients[2], inputs.v);
  return results;
}

Selection Selection::everything(const Problem& p) {
  const auto positions = at::TensorOptions(at::kLong).device(p.device);
  return {at::arange(p.batch, positions), at::arange(p.heads, positions), at::arange(p.query_len, positions)};
}

Selection Selection::random(const Problem& p, int64_t count, uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto draw = [&](int64_t total, int64_t wanted) {
    return std::get<0>(at::randperm(total, generator, at::TensorOptions(at::kLong)).narrow(0, 0, std::min(total, wanted)).sort());
  };
  // The reference goes over every key of a pair in float64: one pair is enough of that when it is long.
  const int64_t some = p.key_len > kLongLength ? 1 : 2;
  Selection selection{draw(p.batch, some), draw(p.heads, some), {}};
  const auto pairs = std::max<int64_t>(1, selection.batch.numel() * selection.heads.numel());
  selection.rows = draw(p.query_len, (count + pairs - 1) / pairs);
  selection.rows[0] = 0;
  selection.rows[-1] = p.query_len - 1;
  for (auto* index : {&selection.batch, &selection.heads, &selection.rows}) *index = index->to(p.device);
  return selection;
}

Inputs restrict_gradient(const Inputs& inputs, const Selection& selection) {
  Inputs restricted = inputs;
  if (!inputs.output_gradient.defined()) return restricted;
  const auto batch = selection.batch.view({-1, 1, 1}), heads = selection.heads.view({1, -1, 1}),
             rows = selection.rows.view({1, 1, -1});
  restricted.output_gradient = at::zeros_like(inputs.output_gradient);
  restricted.output_gradient.index_put_({batch, heads, rows}, inputs.output_gradient.index({batch, heads, rows}));
  return restricted;
}

void Agreement::include(const Agreement& other) {
  finite = finite && other.finite;
  max_abs_error = std::max(max_abs_error, other.max_abs_error);
  if (worst.empty() || !(other.max_rel_error <= max_rel_error)) {
    max_rel_error = other.max_rel_error;
    worst = other.worst;
  }
}

Agreement compare(const AttentionMethod& method, const Inputs& inputs, const Results& results, Protocol protocol,
                  const Selection& selection) {
  const bool backward = protocol == Protocol::forward_backward;
  const auto widen = [&](const at::Tensor& x) {
    return select(x.detach(), selection).to(at::kDouble).set_requires_grad(backward);
  };
  const auto q = widen(inputs.q), k = widen(inputs.k), v = widen(inputs.v);
  const at::AutoGradMode with_gradients(backward);
  const auto reference = method.reference(q, k, v, inputs.mask.select(selection.batch), selection.rows);
  Agreement agreement =
      compare_tensor("output", select(results.output, selection).index_select(2, selection.rows), reference.detach(), 0);
  if (backward) {
    const auto gradient = select(inputs.output_gradient, selection).index_select(2, selection.rows).to(at::kDouble);
    auto expected = torch::autograd::grad({reference}, {q, k, v}, {gradient}, std::nullopt, false, /*allow_unused=*/true);
    const at::Tensor* const inputs_of[] = {&q, &k, &v};
    double largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!expected[i].defined()) expected[i] = at::zeros_like(*inputs_of[i]);
      largest = std::max(largest, largest_entry(expected[i]));
    }
    agreement.include(compare_tensor("q gradient", select(results.q_gradient, selection), expected[0], largest / 10));
    agreement.include(compare_tensor("k gradient", select(results.k_gradient, selection), expected[1], largest / 10));
    agreement.include(compare_tensor("v gradient", select(results.v_gradient, selection), expected[2], largest / 10));
  }
  for (const auto* result : {&results.output, &results.q_gradient, &results.k_gradient, &results.v_gradient})
    agreement.finite = agreement.finite && all_finite(*result);
  return agreement;
}

double error_tolerance(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return 1e-9;  // denominators may cancel
    case at::kFloat: return 5e-4;   // sums over 65536 keys lose some bits
    case at::kHalf: return 1e-2;
    case at::kBFloat16: return 4e-2;
    default: TORCH_CHECK_VALUE(false, "no error tolerance for ", dtype_name(dtype));
  }
}

}  // namespace attn
