// Runs the recurrence in chunks with batched matrix products and a triangular solve.
#include "attn/recurrent/composed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "attn/operators/composition.h"
#include "attn/recurrent/definition.h"

namespace attn {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// The number of positions of a chunk. Chunks are smaller with a decay for each feature, because each pair of positions then has a
// number for every feature.
constexpr int64_t kComposedPositions = 64, kComposedFeaturePositions = 16;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Rows of q or k in `dtype`, divided by their lengths if `normalize`.
Tensor used_rows(const Tensor& x, bool normalize, at::ScalarType dtype) {
  const auto wide = x.to(dtype);
  return normalize ? wide * at::rsqrt(wide.square().sum(-1, /*keepdim=*/true) + kLengthEpsilon) : wide;
}

// The decays of a chunk of C positions: from its beginning to each position [B,W,C,F], from each position to its end [B,W,C,F],
// and from position j to position i ≥ j [B,W,C,C,F]. A segment begins at each position where e^g is 0, also for a finite g, in
// whose sums the digits of all later decays would be lost; decays from one segment to another are zero. F is 1, or K with a decay
// for each feature.
struct ChunkDecays {
  Tensor from_begin, to_end, pairs;
};
// From g [B,W,C,F].
ChunkDecays decays_of(const Tensor& g) {
  const auto clears = g.lt(g.scalar_type() == at::kDouble ? kSmallestLogarithm64 : kSmallestLogarithm32);
  const auto sums = g.masked_fill(clears, 0).cumsum(2);
  const auto segments = clears.cumsum(2);
  const auto last = [](const Tensor& x) { return x.narrow(2, x.size(2) - 1, 1); };
  const auto differences = sums.unsqueeze(3) - sums.unsqueeze(2);
  const auto later = at::ones({g.size(2), g.size(2)}, g.options().dtype(at::kBool)).triu(1).unsqueeze(2);
  const auto hidden = (segments.unsqueeze(3) != segments.unsqueeze(2)).logical_or(later);
  return {sums.masked_fill(segments > 0, kMinusInfinity).exp(),
          (last(sums) - sums).masked_fill(segments != last(segments), kMinusInfinity).exp(),
          differences.masked_fill(hidden, kMinusInfinity).exp()};
}

// The scalar products of rows i of x and j of y [B,W,C,K], multiplied by the decay from j to i: [B,W,C,C].
Tensor decayed_scores(const Tensor& x, const Tensor& y, const Tensor& pairs) {
  if (pairs.size(4) == 1) return at::matmul(x, y.transpose(2, 3)) * pairs.squeeze(4);
  return (x.unsqueeze(3) * y.unsqueeze(2) * pairs).sum(4);
}

// The outputs of one sequence [B,W,T,V]. `state` [B,W,K,V] is the state before it, and becomes the state after it.
Tensor run_sequence(const RecurrentArguments& a, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g,
                    const Tensor& beta, Tensor& state) {
  std::vector<Tensor> outputs;
  const auto positions = a.has_feature_gates() ? kComposedFeaturePositions : kComposedPositions;
  for (int64_t begin = 0; begin < q.size(2); begin += positions) {
    const auto part = [&](const Tensor& x) { return x.narrow(2, begin, std::min(positions, x.size(2) - begin)); };
    const auto keys = part(k), queries = part(q), step = part(beta).unsqueeze(3);
    const auto e = decays_of(part(g));
    auto u = part(v);
    if (a.delta) {
      const auto system = (decayed_scores(keys, keys, e.pairs) * step).tril(-1);
      u = at::linalg_solve_triangular(system + at::eye(system.size(3), system.options()),
                                      step * (u - at::matmul(keys * e.from_begin, state)), /*upper=*/false, /*left=*/true,
                                      /*unitriangular=*/true);
    }
    const auto pairs = decayed_scores(queries, keys, e.pairs);
    outputs.push_back(at::matmul(queries * e.from_begin, state) + at::matmul(pairs, u));
    const auto kept = e.from_begin.narrow(2, keys.size(2) - 1, 1).transpose(2, 3);
    state = kept * state + at::matmul((keys * e.to_end).transpose(2, 3), u);
  }
  return outputs.empty() ? at::zeros_like(v) : at::cat(outputs, 2);
}

}  // namespace

RecurrentResults composed_recurrent_forward(const RecurrentArguments& a) {
  const auto dtype = accumulator_dtype(a.q.scalar_type());
  const auto sharing = a.q.size(1) == 0 ? 1 : a.v.size(1) / a.q.size(1);
  const auto all_heads = [&](const Tensor& x) { return sharing == 1 ? x : x.repeat_interleave(sharing, 1); };
  const auto q = all_heads(used_rows(a.q, a.normalize, dtype) * a.scale), k = all_heads(used_rows(a.k, a.normalize, dtype));
  const auto v = a.v.to(dtype);
  const auto options = v.options();
  const std::vector<int64_t> gates{v.size(0), v.size(1), v.size(2)};
  const auto of_head = a.g ? *a.g : at::zeros({1}, options).expand(gates);
  const auto g = a.has_feature_gates() ? of_head : of_head.unsqueeze(3);
  const auto beta = a.beta ? *a.beta : at::ones({1}, options).expand(gates);
  auto borders = std::vector<int64_t>{0, q.size(2)};
  if (a.cu_seqlens) {
    const auto on_cpu = a.cu_seqlens->cpu().contiguous();
    borders.assign(on_cpu.const_data_ptr<int64_t>(), on_cpu.const_data_ptr<int64_t>() + on_cpu.numel());
  }
  std::vector<Tensor> outputs, states;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const auto rows_of_sequence = [&](const Tensor& x) { return x.narrow(2, borders[i], borders[i + 1] - borders[i]); };
    auto state = !a.initial_state ? at::zeros({v.size(0), v.size(1), k.size(3), v.size(3)}, options)
                 : a.cu_seqlens   ? a.initial_state->narrow(0, int64_t(i), 1)
                                  : *a.initial_state;
    outputs.push_back(run_sequence(a, rows_of_sequence(q), rows_of_sequence(k), rows_of_sequence(v), rows_of_sequence(g),
                                   rows_of_sequence(beta), state));
    states.push_back(state);
  }
  // An operator must not return one of its arguments, such as an initial state that no position has changed.
  return {at::cat(outputs, 2).to(a.q.scalar_type()), at::cat(states, 0).clone(), {}};
}

RecurrentGradients composed_recurrent_backward(const RecurrentArguments& a, const Tensor& grad_output,
                                               const Tensor& grad_final_state) {
  auto copies = a;
  std::vector<Tensor*> inputs{&copies.q, &copies.k, &copies.v};
  for (auto* optional : {&copies.g, &copies.beta, &copies.initial_state})
    if (*optional) inputs.push_back(&**optional);
  const auto forward = [&] {
    const auto results = composed_recurrent_forward(copies);
    return std::vector<Tensor>{results.output, results.final_state};
  };
  const auto found = gradients_of_composition(inputs, forward, {grad_output, grad_final_state});
  auto next = found.begin() + 3;
  RecurrentGradients all{found[0], found[1], found[2], {}, {}, {}};
  if (a.g) all.g = *next++;
  if (a.beta) all.beta = *next++;
  if (a.initial_state) all.initial_state = *next++;
  return all;
}

// How many numbers exist at once was counted in the code above.
double composed_recurrent_bytes(const Problem& p, bool delta, bool normalize, bool feature_gates, bool backward) {
  const auto number = double(c10::elementSize(accumulator_dtype(p.dtype)));
  const double heads = double(p.batch) * double(p.value_head_count()), length = double(p.query_len);
  const double keys = double(p.head_dim), values = double(p.value_dim),
               pairs = double(std::min(p.query_len, feature_gates ? kComposedFeaturePositions : kComposedPositions));
  const double widened = p.element_bytes() < number ? values : 0;
  const double rows = (normalize ? 3 : 2) * keys + values + widened;
  const double recorded = backward ? (delta ? 6 : 4) * pairs + (delta ? 6 : 4) * keys + (delta ? 4 : 3) * values : 0;
  const double state = keys * values * (backward ? 3 * length / pairs : 2);
  // The numbers that pairs of positions have for each feature: decays and products of rows.
  const double of_features = feature_gates ? pairs * keys * (backward ? (delta ? 4 : 2) * length : 4 * pairs) : 0;
  return number * heads * ((rows + recorded) * length + state + 4 * pairs * pairs + of_features);
}

}  // namespace attn
