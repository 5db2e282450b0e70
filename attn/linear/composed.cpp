// Linear attention in chunks, composed of ATen operations: forward, backward and decoding.
#include "attn/linear/composed.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "attn/linear/value_shift.h"
#include "attn/mask.h"
#include "attn/triangular.h"

namespace attn {
namespace {

using at::Tensor;

// Positions in a chunk without the causal mask: large enough for full speed, and small enough that the features of a chunk take
// little memory.
constexpr int64_t kFullChunk = 1024;

// [B,H,T,·] → [R,T,·] with R = B·H, without a copy if the strides allow it.
Tensor merge_heads(const Tensor& x) { return x.flatten(0, 1); }

Tensor with_ones(const Tensor& v) { return at::cat({v, at::ones({v.size(0), v.size(1), 1}, v.options())}, 2); }

// x · exp(exponent), or x itself if the exponent is undefined.
Tensor scaled(const Tensor& x, const Tensor& exponent) { return exponent.defined() ? x * exponent.exp() : x; }

// a − b, or an undefined tensor if `a` is undefined, as scales are for maps without scales.
Tensor difference(const Tensor& a, const Tensor& b) { return a.defined() ? a - b : Tensor(); }

// φ(k) of keys [R,T,D]; the features of hidden keys are zero.
Features key_features(const FeatureMap& map, const Tensor& k, const Tensor& hidden) {
  auto features = map.apply(k);
  if (!hidden.defined()) return features;
  features.phi = features.phi.masked_fill(hidden, 0);
  if (features.log_scale.defined()) features.log_scale = features.log_scale.masked_fill(hidden, kNoScale);
  return features;
}

// ε relative to exp(query scale + state scale).
Tensor relative_epsilon(double epsilon, const Tensor& query_scale, const Tensor& state_scale, const at::TensorOptions& options) {
  return query_scale.defined() ? epsilon * (-(query_scale + state_scale)).exp() : at::full({1, 1, 1}, epsilon, options);
}

// Divides the numerators in sums [R,T,M+1] by the normalizers, which are its last column plus ε.
LinearOutput divided(const Tensor& sums, double epsilon, const Tensor& query_scale, const Tensor& state_scale) {
  const auto value_dim = sums.size(2) - 1;
  const auto total = sums.narrow(2, value_dim, 1) + relative_epsilon(epsilon, query_scale, state_scale, sums.options());
  auto output = sums.narrow(2, 0, value_dim) / total;
  if (!state_scale.defined()) return {output, total};
  return {output, at::cat({total, state_scale.expand_as(total)}, 2)};
}

// The inputs as [R,·,·]. The functions return one chunk at a time, in the accumulator dtype; hidden rows of v are zero. The rows
// of v are shifted by `value_shift` [B,H,M] if it is given.
class Sequences {
 public:
  Sequences(const LinearArguments& a, const FeatureMap& map, const Tensor& value_shift = {})
      : q_(merge_heads(a.q)), k_(merge_heads(a.k)), v_(merge_heads(a.v)), dtype_(map.accumulator_dtype(a.q.scalar_type())) {
    if (const auto hidden = Mask{false, a.key_lengths}.hidden_keys(a.k.size(2)))
      hidden_ = merge_heads(hidden->expand({a.k.size(0), a.k.size(1), a.k.size(2), 1}));
    if (value_shift.defined()) value_shift_ = merge_heads(value_shift.unsqueeze(2));
  }

  int64_t query_len() const { return q_.size(1); }
  int64_t key_len() const { return k_.size(1); }
  at::TensorOptions options() const { return q_.options().dtype(dtype_); }

  Tensor q(int64_t begin, int64_t size) const { return q_.narrow(1, begin, size).to(dtype_); }
  Tensor k(int64_t begin, int64_t size) const { return k_.narrow(1, begin, size).to(dtype_); }
  Tensor v(int64_t begin, int64_t size) const {
    auto v = v_.narrow(1, begin, size).to(dtype_);
    if (value_shift_.defined()) v = v - value_shift_;
    return hidden_.defined() ? v.masked_fill(hidden(begin, size), 0) : v;
  }
  Tensor hidden(int64_t begin, int64_t size) const { return hidden_.defined() ? hidden_.narrow(1, begin, size) : hidden_; }
  const Tensor& value_shift() const { return value_shift_; }  // [R,1,M]

 private:
  Tensor q_, k_, v_, hidden_, value_shift_;
  at::ScalarType dtype_;
};

void for_each_chunk(int64_t length, int64_t size, const std::function<void(int64_t, int64_t)>& work) {
  for (int64_t begin = 0; begin < length; begin += size) work(begin, std::min(size, length - begin));
}
void for_each_chunk_backwards(int64_t length, int64_t size, const std::function<void(int64_t, int64_t)>& work) {
  for (int64_t begin = (length - 1) / size * size; begin >= 0; begin -= size) work(begin, std::min(size, length - begin));
}

// One chunk of C positions of the causal form. Its scores are φ(q_i)·φ(k_j), j ≤ i, relative to the scale of the state after
// position i.
struct Chunk {
  Tensor q, k, v;  // [R,C,D], [R,C,D], [R,C,M+1]; the last column of v is ones
  Features features_q, features_k;
  // For maps with scales:
  Tensor state_scale;  // [R,C,1]: the scale of the state after each position
  Tensor key_weights;  // [R,C,C]: the scale of key j minus the scale of the state after position i

  Chunk(const Sequences& in, const FeatureMap& map, int64_t begin, int64_t size, const Tensor& scale_before)
      : q(in.q(begin, size)),
        k(in.k(begin, size)),
        v(with_ones(in.v(begin, size))),
        features_q(map.apply(q)),
        features_k(key_features(map, k, in.hidden(begin, size))) {
    if (!scale_before.defined()) return;
    state_scale = at::maximum(std::get<0>(features_k.log_scale.cummax(1)), scale_before);
    key_weights = features_k.log_scale.transpose(1, 2) - state_scale;
  }
  Tensor scores() const { return scaled(at::bmm(features_q.phi, features_k.phi.transpose(1, 2)), key_weights).tril_(); }
  // The gradients of the scores, from the gradients of the rows and from the values of the keys.
  Tensor grad_scores(const Tensor& grad_rows, const Tensor& values) const {
    return scaled(at::bmm(grad_rows, values.transpose(1, 2)), key_weights).tril_();
  }
  // [R,C,C]: the weight of key j's φ(k) in the sum over the keys that row i sees.
  Tensor weights() const {
    return (key_weights.defined() ? key_weights.exp() : at::ones({q.size(0), q.size(1), q.size(1)}, q.options())).tril_();
  }
};

// The gradients of each row's numerator and of its normalizer, both relative to the scales of query and state, for values that
// are shifted by `value_shift` [R,1,M] (value_shift.h). The pass over the queries computes the latter with set_grad_normalizer().
class RowGradients {
 public:
  RowGradients(const Tensor& gradient, const Tensor& normalizer, const Tensor& value_shift, double epsilon)
      : gradient_(merge_heads(gradient)),
        normalizer_(merge_heads(normalizer)),
        value_shift_(value_shift),
        epsilon_(epsilon),
        grad_normalizer_(at::empty_like(normalizer_.narrow(2, 0, 1), at::MemoryFormat::Contiguous)) {}

  Tensor grad_numerator(int64_t begin, int64_t size) const {
    const auto total = normalizer(begin, size);
    return gradient_.narrow(1, begin, size).to(total.scalar_type()) / total;
  }
  // Computes and stores δ′ = (ε c·g′ − φ(q)·a) / normalizer, where a = S′ g′ is the part of the gradient of φ(q) that comes from
  // the numerator. The output is not used instead of S′, because it is rounded to the dtype of q.
  Tensor set_grad_normalizer(int64_t begin, const Features& features_q, const Tensor& a, const Tensor& state_scale) const {
    const auto size = a.size(1);
    const auto part = grad_normalizer_.narrow(1, begin, size);
    const auto total = normalizer(begin, size);
    const auto epsilon = relative_epsilon(epsilon_, features_q.log_scale, state_scale, a.options());
    // The share of each normalizer that is ε. A normalizer beyond the range of the dtype is ε alone.
    const auto share = at::where(at::isinf(total), at::ones({}, total.options()), epsilon / total);
    const auto of_epsilon = (grad_numerator(begin, size) * value_shift_).sum(2, /*keepdim=*/true) * share;
    part.copy_(of_epsilon - (features_q.phi * a).sum(2, /*keepdim=*/true) / total);
    return part;
  }
  // The gradients of numerators and normalizers, [R,T,M+1].
  Tensor operator()(int64_t begin, int64_t size) const {
    return at::cat({grad_numerator(begin, size), grad_normalizer_.narrow(1, begin, size)}, 2);
  }
  // The scale of the state that each row saw; undefined for maps without scales.
  Tensor state_scale(int64_t begin, int64_t size) const {
    return normalizer_.size(2) == 2 ? normalizer_.narrow(1, begin, size).narrow(2, 1, 1) : Tensor();
  }

 private:
  Tensor normalizer(int64_t begin, int64_t size) const { return normalizer_.narrow(1, begin, size).narrow(2, 0, 1); }

  Tensor gradient_, normalizer_, value_shift_;
  double epsilon_;
  Tensor grad_normalizer_;
};

// The gradients that the backward pass writes. Those of hidden keys are zeros.
struct Gradients {
  Tensor q, k, v;

  Gradients(const Tensor& like_q, const Tensor& like_k, const Tensor& like_v)
      : q(at::empty(like_q.sizes(), like_q.options())),
        k(at::empty(like_k.sizes(), like_k.options())),
        v(at::empty(like_v.sizes(), like_v.options())) {}

  static void store(const Tensor& all, int64_t begin, const Tensor& part, const Tensor& hidden = {}) {
    merge_heads(all).narrow(1, begin, part.size(1)).copy_(hidden.defined() ? part.masked_fill(hidden, 0) : part);
  }
};

void full_backward(const Sequences& in, const FeatureMap& map, const RowGradients& row_gradients, const Gradients& out) {
  const auto value_dim = out.v.size(3);
  auto keys = LinearState::zeros(map, out.q.size(0) * out.q.size(1), out.q.size(3), value_dim, in.options());
  for_each_chunk(in.key_len(), kFullChunk, [&](int64_t begin, int64_t size) {
    keys.add(map, in.k(begin, size), in.v(begin, size), in.hidden(begin, size));
  });
  auto queries = at::zeros_like(keys.sums);  // R = Σ φ(q) g′ᵀ, with Y = Σ δ φ(q) in the last column
  for_each_chunk(in.query_len(), kFullChunk, [&](int64_t begin, int64_t size) {
    const auto q = in.q(begin, size);
    const auto features = map.apply(q);
    auto grad_phi = at::bmm(row_gradients.grad_numerator(begin, size), keys.sums.narrow(2, 0, value_dim).transpose(1, 2));
    const auto grad_normalizer = row_gradients.set_grad_normalizer(begin, features, grad_phi, keys.log_scale);
    grad_phi += grad_normalizer * keys.sums.narrow(2, value_dim, 1).transpose(1, 2);
    Gradients::store(out.q, begin, map.gradient(q, features, grad_phi));
    queries.baddbmm_(features.phi.transpose(1, 2), row_gradients(begin, size));
  });
  for_each_chunk(in.key_len(), kFullChunk, [&](int64_t begin, int64_t size) {
    const auto k = in.k(begin, size), hidden = in.hidden(begin, size);
    const auto features = key_features(map, k, hidden);
    const auto relative = difference(features.log_scale, keys.log_scale);
    const auto grad_phi = scaled(at::bmm(with_ones(in.v(begin, size)), queries.transpose(1, 2)), relative);
    Gradients::store(out.k, begin, map.gradient(k, features, grad_phi), hidden);
    Gradients::store(out.v, begin, scaled(at::bmm(features.phi, queries.narrow(2, 0, value_dim)), relative), hidden);
  });
}

void causal_backward(const Sequences& in, const FeatureMap& map, const RowGradients& row_gradients, int64_t chunk,
                     const Gradients& out) {
  const auto value_dim = out.v.size(3);
  auto keys = LinearState::zeros(map, out.q.size(0) * out.q.size(1), out.q.size(3), value_dim, in.options());
  auto queries = at::zeros_like(keys.sums);  // R = Σ φ(q) g′ᵀ, with Y = Σ δ φ(q) in the last column
  for_each_chunk(in.query_len(), chunk, [&](int64_t begin, int64_t size) {
    const Chunk part(in, map, begin, size, keys.log_scale);
    const auto carried = difference(keys.log_scale, part.state_scale);
    const auto grad_numerator = row_gradients.grad_numerator(begin, size);
    auto grad_phi = scaled(at::bmm(grad_numerator, keys.sums.narrow(2, 0, value_dim).transpose(1, 2)), carried);
    grad_phi += lower_triangular_product(part.grad_scores(grad_numerator, part.v.narrow(2, 0, value_dim)), part.features_k.phi);
    const auto grad_normalizer = row_gradients.set_grad_normalizer(begin, part.features_q, grad_phi, part.state_scale);
    auto key_sums = scaled(keys.sums.narrow(2, value_dim, 1).transpose(1, 2), carried);
    key_sums = key_sums + lower_triangular_product(part.weights(), part.features_k.phi);
    Gradients::store(out.q, begin, map.gradient(part.q, part.features_q, grad_phi.addcmul_(grad_normalizer, key_sums)));
    keys.add(map, part.k, part.v.narrow(2, 0, value_dim), in.hidden(begin, size));
  });
  Tensor later_scale;  // R is relative to exp(-later_scale)
  for_each_chunk_backwards(in.query_len(), chunk, [&](int64_t begin, int64_t size) {
    const auto scale_before = row_gradients.state_scale(begin, 1);  // at most the scale of any row in the chunk
    const Chunk part(in, map, begin, size, scale_before);
    const auto gradients = row_gradients(begin, size), hidden = in.hidden(begin, size);
    if (scale_before.defined() && !later_scale.defined()) later_scale = row_gradients.state_scale(begin + size - 1, 1);
    const auto relative = difference(part.features_k.log_scale, later_scale);
    auto grad_phi = scaled(at::bmm(part.v, queries.transpose(1, 2)), relative);
    grad_phi += upper_triangular_product(part.grad_scores(gradients, part.v).transpose(1, 2), part.features_q.phi);
    Gradients::store(out.k, begin, map.gradient(part.k, part.features_k, grad_phi), hidden);
    auto grad_v = scaled(at::bmm(part.features_k.phi, queries.narrow(2, 0, value_dim)), relative);
    grad_v += upper_triangular_product(part.scores().transpose(1, 2), gradients.narrow(2, 0, value_dim));
    Gradients::store(out.v, begin, grad_v, hidden);
    queries = scaled(queries, difference(scale_before, later_scale));
    queries.baddbmm_(scaled(part.features_q.phi, difference(scale_before, part.state_scale)).transpose(1, 2), gradients);
    later_scale = scale_before;
  });
}

}  // namespace

LinearState LinearState::zeros(const FeatureMap& map, int64_t rows, int64_t head_dim, int64_t value_dim,
                               const at::TensorOptions& options) {
  LinearState state{at::zeros({rows, map.count(head_dim), value_dim + 1}, options), {}};
  if (has_scales(map.update())) state.log_scale = at::full({rows, 1, 1}, kNoScale, options);
  return state;
}

void LinearState::add(const FeatureMap& map, const Tensor& k, const Tensor& v, const Tensor& hidden) {
  auto features = key_features(map, k, hidden);
  const auto values = with_ones(v);
  const bool records_gradients =
      at::GradMode::is_enabled() && (sums.requires_grad() || features.phi.requires_grad() || v.requires_grad());
  if (log_scale.defined()) {
    const auto larger = at::maximum(log_scale, features.log_scale.amax(1, /*keepdim=*/true));
    features.phi = scaled(features.phi, features.log_scale - larger);
    const auto shrink = (log_scale - larger).exp();
    sums = records_gradients ? sums * shrink : sums.mul_(shrink);
    log_scale = larger;
  }
  const auto transposed = features.phi.transpose(1, 2);
  sums = records_gradients ? at::baddbmm(sums, transposed, values) : sums.baddbmm_(transposed, values);
}

LinearOutput read(const LinearState& state, const FeatureMap& map, const Tensor& q, double epsilon) {
  const auto features = map.apply(q);
  return divided(at::bmm(features.phi, state.sums), epsilon, features.log_scale, state.log_scale);
}

std::tuple<Tensor, Tensor> composed_linear_forward(const LinearArguments& a, int64_t chunk) {
  const auto map = make_feature_map(a.map);
  const Sequences in(a, *map);
  const auto value_dim = a.v.size(3);
  const auto output = at::empty({a.q.size(0), a.q.size(1), a.q.size(2), value_dim}, a.q.options());
  const auto normalizer = at::empty({a.q.size(0), a.q.size(1), a.q.size(2), normalizer_numbers(map->update())}, in.options());
  const auto merged_output = merge_heads(output), merged_normalizer = merge_heads(normalizer);
  const auto store = [&](int64_t begin, int64_t size, const LinearOutput& part) {
    merged_output.narrow(1, begin, size).copy_(part.output);
    merged_normalizer.narrow(1, begin, size).copy_(part.normalizer);
  };
  auto state = LinearState::zeros(*map, a.q.size(0) * a.q.size(1), a.q.size(3), value_dim, in.options());
  if (!a.causal) {
    for_each_chunk(in.key_len(), kFullChunk, [&](int64_t begin, int64_t size) {
      state.add(*map, in.k(begin, size), in.v(begin, size), in.hidden(begin, size));
    });
    for_each_chunk(in.query_len(), kFullChunk,
                   [&](int64_t begin, int64_t size) { store(begin, size, read(state, *map, in.q(begin, size), a.epsilon)); });
    return {output, normalizer};
  }
  for_each_chunk(in.query_len(), chunk, [&](int64_t begin, int64_t size) {
    const Chunk part(in, *map, begin, size, state.log_scale);
    auto sums = scaled(at::bmm(part.features_q.phi, state.sums), difference(state.log_scale, part.state_scale));
    sums += lower_triangular_product(part.scores(), part.v);
    store(begin, size, divided(sums, a.epsilon, part.features_q.log_scale, part.state_scale));
    state.add(*map, part.k, part.v.narrow(2, 0, value_dim), in.hidden(begin, size));
  });
  return {output, normalizer};
}

std::tuple<Tensor, Tensor, Tensor> composed_linear_backward(const LinearArguments& a, const Tensor& grad_output,
                                                            const Tensor& normalizer, int64_t chunk) {
  const auto map = make_feature_map(a.map);
  const Sequences in(a, *map, value_shift(a.v, a.key_lengths, map->accumulator_dtype(a.q.scalar_type())));
  const RowGradients row_gradients(grad_output, normalizer, in.value_shift(), a.epsilon);
  const Gradients gradients(a.q, a.k, a.v);
  if (a.causal) causal_backward(in, *map, row_gradients, chunk, gradients);
  else full_backward(in, *map, row_gradients, gradients);
  return {gradients.q, gradients.k, gradients.v};
}

Tensor composed_linear_step(const Tensor& q, const Tensor& k, const Tensor& v, const LinearDecodingState& state,
                            FeatureMapKind map, double epsilon) {
  const auto feature_map = make_feature_map({map});
  const auto dtype = state.s.scalar_type();
  const auto features = [&](const Tensor& x) {
    return feature_map->apply(merge_heads(x).to(dtype)).phi.unflatten(0, {q.size(0), q.size(1)});
  };
  const auto phi = features(q), kappa = features(k);
  state.s.add_(at::matmul(kappa.transpose(2, 3), v.to(dtype)));
  state.z.add_(kappa.squeeze(2));
  return at::matmul(phi, state.s).div_(at::matmul(phi, state.z.unsqueeze(3)).add_(epsilon)).to(q.scalar_type());
}

}  // namespace attn
