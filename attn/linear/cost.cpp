// The predicted cost of linear attention: operations, memory traffic and peak memory of kernels, of the composed computation, and
// of decoding.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/linear/method.h"

namespace attn {
namespace {

// The operations to compute the features of one position: a product with the directions for maps that have them, and a few
// operations per feature for others.
double map_flops(const FeatureMap& map, double features, double head_dim) {
  return map.exponentiates() ? 2 * features * head_dim : 4 * features;
}

// The cost, given the operations of the forward pass and the memory that is used beside inputs and results.
Cost cost_with(const Problem& p, bool backward, double forward_flops, double working_bytes) {
  const double tensors = p.input_bytes() + p.output_bytes();
  const double results = p.output_bytes() + (backward ? p.output_bytes() + p.input_bytes() : 0);
  return {.flops = backward ? 3.5 * forward_flops : forward_flops,
          .min_bytes = backward ? 2 * tensors + p.input_bytes() : tensors,
          .peak_bytes = p.input_bytes() + results + working_bytes};
}

}  // namespace

std::unique_ptr<const FeatureMap> LinearMethod::map_for_prediction(int64_t head_dim) const {
  FeatureMapSpec spec{feature_map_};
  if (direction_count() > 0)
    spec.projection = at::empty({direction_count(), head_dim}, at::TensorOptions(at::kDouble).device(at::kMeta));
  return make_feature_map(spec);
}

Cost LinearMethod::cost(const Problem& problem, Protocol protocol) const {
  if (problem.heads_are_shared()) return cost_with_repeated_heads(cost(problem.with_all_heads(), protocol), problem, protocol);
  if (protocol == Protocol::decode) return decode_cost(problem);
  const bool backward = protocol == Protocol::forward_backward;
  if (const auto* implementation = implementation_for(problem, backward)) return kernel_cost(problem, backward, *implementation);
  return composed_cost(problem, backward);
}

// The cost of one step, which reads and writes the state once.
Cost LinearMethod::decode_cost(const Problem& p) const {
  const auto map = map_for_prediction(p.head_dim);
  const double heads = double(p.batch) * double(p.heads), features = double(map->count(p.head_dim));
  const double values = double(p.value_dim + 1), number = double(c10::elementSize(map->accumulator_dtype(p.dtype)));
  const double token = (p.input_bytes() + p.output_bytes()) / double(p.query_len), state = features * values;
  return {.flops = heads * (4 * state + 2 * map_flops(*map, features, double(p.head_dim))),
          .min_bytes = 2 * heads * state * number + token,
          .peak_bytes = token + heads * state * number + heads * number * 4 * (features + values)};
}

Cost LinearMethod::composed_cost(const Problem& p, bool backward) const {
  const auto map = map_for_prediction(p.head_dim);
  const double heads = double(p.batch) * double(p.heads), features = double(map->count(p.head_dim));
  const double values = double(p.value_dim + 1), number = double(c10::elementSize(map->accumulator_dtype(p.dtype)));
  const double chunk = double(std::min(p.causal ? composed_chunk_ : int64_t{1024}, p.query_len));
  const double state = features * values;
  const double pairs = p.causal ? chunk * (features + values) * double(p.query_len) : 0;
  const double forward =
      heads * ((2 * state + map_flops(*map, features, double(p.head_dim))) * double(p.key_len + p.query_len) + 2 * pairs);
  // The memory beside inputs and results: the states, the normalizers, and one chunk.
  const double numbers = state * (backward ? 2 : 1) + double(p.query_len) * normalizer_numbers(map->update()) +
                         composed_chunk_numbers(p, backward, chunk, features);
  return cost_with(p, backward, forward, heads * number * numbers);
}

// How many numbers the composed computation holds of one chunk: features, products and, with the causal mask, scores. The numbers
// of copies that exist at once were counted on the code of composed.cpp.
double LinearMethod::composed_chunk_numbers(const Problem& p, bool backward, double chunk, double features) const {
  const auto map = map_for_prediction(p.head_dim);
  const double number = double(c10::elementSize(map->accumulator_dtype(p.dtype)));
  const double dims = double(p.head_dim), values = double(p.value_dim + 1);
  const bool widened = number > p.element_bytes();  // inputs are converted to the accumulator dtype
  const bool many_features = features > 4 * dims;
  if (!p.causal) {
    const double copies = map->exponentiates() ? 4 : many_features ? (backward ? 5 : 4) : 1.3;
    return chunk * (copies * features + (widened ? dims : 0) + (backward ? 2.5 : 2) * values);
  }
  const double copies = map->exponentiates() ? 6 : many_features ? 7.5 : 3;
  const double scores = chunk * chunk * (backward ? 3 : 2.5) * (map->exponentiates() ? 2 : 1);
  return chunk * (copies * features + (widened ? 3 : 1.5) * dims + (backward ? 5 : 4) * values) + scores;
}

// Counts the operations of the recurrence alone, although kernels also compute the scores of each chunk.
Cost LinearMethod::kernel_cost(const Problem& p, bool backward, const LinearImplementation& implementation) const {
  const auto map = map_for_prediction(p.head_dim);
  const auto features = map->count(p.head_dim);
  const double heads = double(p.batch) * double(p.heads);
  const double product = 2 * double(features) * double(p.value_dim);
  const double projection = map->exponentiates() ? 2 * double(features) * double(p.head_dim) : 0;
  const double forward = heads * (product + projection) * double(p.key_len + p.query_len);
  const double number = p.dtype == at::kDouble ? 8 : 4;
  const double normalizers =
      normalizer_numbers(map->update()) + (backward ? 1 : 0);  // the backward pass also stores its gradient
  return cost_with(p, backward, forward,
                   number * (heads * double(p.query_len) * normalizers + implementation.state_numbers(p, features, backward)));
}

double LinearMethod::state_bytes(const Problem& p, int64_t) const {
  const auto map = map_for_prediction(p.head_dim);
  const double numbers = double(map->count(p.head_dim)) * double(p.value_dim + 1) + (has_scales(map->update()) ? 1 : 0);
  return double(p.batch) * double(p.heads) * numbers * double(c10::elementSize(map->accumulator_dtype(p.dtype)));
}

}  // namespace attn
