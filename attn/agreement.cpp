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

constexpr std::pair<const char*, InputDistribution> kInputDistributions[] = {
    {"normal", InputDistribution::normal},
    {"clustered", InputDistribution::clustered},
    {"repeated", InputDistribution::repeated},
};
constexpr int64_t kCentres = 16;
constexpr double kSpread = 0.1;  // around a centre
constexpr int64_t kRepeatedBlock = 64;

// What is drawn from one seed, each from a generator of its own. Those from -1 down belong to clustered inputs.
enum Draw : int64_t {
  q_draw = 0,
  k_draw = 1,
  v_draw = 2,
  gradient_draw = 3,
  centre_draw = -1,
  q_cluster_draw = -2,
  k_cluster_draw = -3
};
uint64_t seed_of(Draw draw, uint64_t seed) { return draw >= 0 ? 4 * seed + uint64_t(draw) : ~(4 * seed + uint64_t(-1 - draw)); }

at::ScalarType drawn_type(const Problem& problem) { return problem.dtype == at::kDouble ? at::kDouble : at::kFloat; }

// `fill` draws into one stretch.
at::Tensor drawn(const std::vector<int64_t>& shape, at::ScalarType dtype, uint64_t seed,
                 void (*fill)(const at::Tensor& stretch, const at::Generator& generator)) {
  const auto flat = at::empty(shape, dtype).view(-1);
  at::parallel_for(0, (flat.numel() + kStretch - 1) / kStretch, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) {
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed * 0x9E3779B97F4A7C15u + uint64_t(i));
      fill(flat.narrow(0, i * kStretch, std::min(kStretch, flat.numel() - i * kStretch)), generator);
    }
  });
  return flat.view(shape);
}

at::Tensor normal(const std::vector<int64_t>& shape, at::ScalarType dtype, uint64_t seed) {
  return drawn(shape, dtype, seed, [](const at::Tensor& x, const at::Generator& generator) { x.normal_(0, 1, generator); });
}

// Rows [B,H,length,D] around centres [B,H,16,D].
at::Tensor clustered(const at::Tensor& centres, int64_t length, uint64_t noise_seed, uint64_t cluster_seed) {
  const std::vector<int64_t> shape = {centres.size(0), centres.size(1), length, centres.size(3)};
  const auto uniform = drawn({shape[0], shape[1], length}, at::kDouble, cluster_seed,
                             [](const at::Tensor& x, const at::Generator& generator) { x.uniform_(0, 1, generator); });
  const auto shares = at::arange(1, kCentres + 1, at::kDouble).reciprocal();
  // The last bound is left out, so that rounding cannot leave a row without a cluster.
  const auto bounds = (shares.cumsum(0) / shares.sum()).narrow(0, 0, kCentres - 1).contiguous();
  const auto cluster = at::searchsorted(bounds, uniform).unsqueeze(3).expand(shape);
  return normal(shape, centres.scalar_type(), noise_seed)
      .mul_(kSpread)
      .add_(centres.gather(2, cluster))
      .div_(std::sqrt(1 + kSpread * kSpread));
}

// q or k, as drawn.
at::Tensor rows_of(const Problem& p, int64_t length, InputDistribution distribution, uint64_t seed, Draw draw,
                   Draw cluster_draw) {
  const auto dtype = drawn_type(p);
  const auto rows = [&](int64_t count, Draw which) {
    return normal({p.batch, p.heads, count, p.head_dim}, dtype, seed_of(which, seed));
  };
  switch (distribution) {
    case InputDistribution::normal: break;
    case InputDistribution::clustered:
      return clustered(rows(kCentres, centre_draw), length, seed_of(draw, seed), seed_of(cluster_draw, seed));
    case InputDistribution::repeated:
      return rows(kRepeatedBlock, draw).index_select(2, at::arange(length).remainder(kRepeatedBlock));
  }
  return rows(length, draw);
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

// What a method's float64 functions are asked, and the output rows [B,H,R,M] that should answer to it.
struct Excerpt {
  at::Tensor q, k, v;
  Mask mask;
  at::Tensor rows, output;
};

// One excerpt; for decode one a step, as the last row of the tokens up to its own: where hashing, sorting or padding depends on
// the length, row i of a longer sequence is another row.
std::vector<Excerpt> excerpts(const Inputs& inputs, const at::Tensor& output, Protocol protocol, const Selection& selection) {
  const auto widen = [&](const at::Tensor& x) { return select(x.detach(), selection).to(at::kDouble); };
  const auto q = widen(inputs.q), k = widen(inputs.k), v = widen(inputs.v), selected = select(output, selection);
  const auto mask = inputs.mask.select(selection.batch);
  if (protocol != Protocol::decode) return {{q, k, v, mask, selection.rows, selected.index_select(2, selection.rows)}};
  const auto first_step = q.size(2) - output.size(2);
  std::vector<Excerpt> steps;
  for (int64_t i = 0; i < selection.rows.numel(); ++i) {
    const auto row = selection.rows.narrow(0, i, 1);
    const auto length = row.item<int64_t>() + 1;
    const auto prefix = [&](const at::Tensor& x) { return x.narrow(2, 0, length); };
    steps.push_back({prefix(q), prefix(k), prefix(v), mask, row, selected.index_select(2, row - first_step)});
  }
  return steps;
}

bool all_finite(const at::Tensor& x) {
  if (!x.defined() || x.numel() == 0) return true;
  const auto [least, most] = at::aminmax(x.detach());  // a NaN anywhere makes both NaN
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

}  // namespace

InputDistribution parse_input_distribution(const std::string& name) {
  for (const auto& [known, distribution] : kInputDistributions)
    if (name == known) return distribution;
  TORCH_CHECK_VALUE(false, "inputs = '", name, "', expected normal, clustered or repeated");
}

Inputs make_inputs(const Problem& p, Protocol protocol, uint64_t seed, InputDistribution distribution) {
  p.validate();
  const auto placed = [&](const at::Tensor& x) { return x.to(at::TensorOptions(p.dtype).device(p.device)); };
  const auto values = [&](int64_t length, Draw draw) {
    return placed(normal({p.batch, p.heads, length, p.value_dim}, drawn_type(p), seed_of(draw, seed)));
  };
  Inputs inputs;
  inputs.q = placed(rows_of(p, p.query_len, distribution, seed, q_draw, q_cluster_draw));
  inputs.k = placed(rows_of(p, p.key_len, distribution, seed, k_draw, k_cluster_draw));
  inputs.v = values(p.key_len, v_draw);
  inputs.mask = Mask::from(p, at::make_generator<at::CPUGeneratorImpl>(seed));
  if (protocol == Protocol::forward_backward) {
    inputs.output_gradient = values(p.query_len, gradient_draw);
    for (auto* input : {&inputs.q, &inputs.k, &inputs.v}) input->set_requires_grad(true);
  }
  return inputs;
}

Results call(AttentionMethod& method, const Inputs& inputs, Protocol protocol) {
  TORCH_CHECK_VALUE(protocol != Protocol::decode, "a decoding step is not a call of its own");
  Results results;
  if (protocol == Protocol::forward_backward) {
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
  const at::NoGradGuard no_grad;
  if (protocol == Protocol::prefill) {
    results.state = method.begin_decoding(problem_of(inputs.q, inputs.k, inputs.v, inputs.mask));
    results.output = method.prefill(*results.state, inputs.q, inputs.k, inputs.v);
  } else {
    results.output = method.forward(inputs.q, inputs.k, inputs.v, inputs.mask);
  }
  return results;
}

std::unique_ptr<DecodingState> decode_up_to(AttentionMethod& method, const Inputs& inputs, int64_t position) {
  const at::NoGradGuard no_grad;
  auto state = method.begin_decoding(problem_of(inputs.q, inputs.k, inputs.v, inputs.mask));
  const auto first = [&](const at::Tensor& x) { return x.narrow(2, 0, position); };
  if (position > 0) method.extend(*state, first(inputs.q), first(inputs.k), first(inputs.v));
  return state;
}

Results decode_from(AttentionMethod& method, const Inputs& inputs, int64_t position) {
  const at::NoGradGuard no_grad;
  Results results;
  results.state = decode_up_to(method, inputs, position);
  std::vector<at::Tensor> outputs;
  for (auto i = position; i < inputs.q.size(2); ++i) {
    const auto token = [&](const at::Tensor& x) { return x.narrow(2, i, 1); };
    outputs.push_back(method.step(*results.state, token(inputs.q), token(inputs.k), token(inputs.v)));
  }
  results.output = at::cat(outputs, 2);
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
  Agreement agreement;
  for (const auto& [q, k, v, mask, rows, output] : excerpts(inputs, results.output, protocol, selection)) {
    for (const auto* x : {&q, &k, &v}) x->set_requires_grad(backward);
    const at::AutoGradMode with_gradients(backward);
    const auto reference = method.reference(q, k, v, mask, rows);
    agreement.include(compare_tensor("output", output, reference.detach(), 0));
    if (!backward) continue;
    const auto gradient = select(inputs.output_gradient, selection).index_select(2, rows).to(at::kDouble);
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

Quality assess(const AttentionMethod& method, const Inputs& inputs, const Results& results, Protocol protocol,
               const Selection& selection) {
  const at::NoGradGuard no_grad;
  Quality quality;
  double distance = 0, size = 0;  // squared
  const auto add_square = [](double& sum, const at::Tensor& x) { sum += x.square().sum().item<double>(); };
  for (const auto& [q, k, v, mask, rows, output] : excerpts(inputs, results.output, protocol, selection)) {
    if (const auto exact = method.approximated(q, k, v, mask, rows)) {
      add_square(distance, output.to(at::kDouble) - *exact);
      add_square(size, *exact);
      quality.approximation_error = std::sqrt(distance / (size > 0 ? size : 1));
    }
    quality.diagnostics = method.diagnostics(q, k, v, mask, rows);
  }
  return quality;
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
