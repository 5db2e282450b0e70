#include "attn/linear/linear_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "attn/linear/implementation.h"
#include "attn/mask.h"
#include "attn/triangular.h"

namespace attn {
namespace {

using at::Tensor;

// Positions at a time where all keys go into one sum: enough for full speed, and features are kept for no more.
constexpr int64_t kBlock = 1024;

// The scale of what nobody has seen. Finite, so that differences are; e to any difference from it is 0 or, for an empty
// state's ε, infinite, which makes the output the 0 that it should be.
constexpr double kNoScale = -1e30;

// [B,H,T,·] → [R,T,·], without a copy when the strides allow it.
Tensor merge_heads(const Tensor& x) { return x.flatten(0, 1); }

Tensor with_ones(const Tensor& v) { return at::cat({v, at::ones({v.size(0), v.size(1), 1}, v.options())}, 2); }

// x · exp(exponent); x itself where there is no exponent.
Tensor scaled(const Tensor& x, const Tensor& exponent) { return exponent.defined() ? x * exponent.exp() : x; }

// a − b of scales, undefined where they are.
Tensor difference(const Tensor& a, const Tensor& b) { return a.defined() ? a - b : Tensor(); }

Features key_features(const FeatureMap& map, const Tensor& k, const Tensor& hidden) {
  auto features = map.apply(k);
  if (!hidden.defined()) return features;
  features.phi = features.phi.masked_fill(hidden, 0);
  if (features.log_scale.defined()) features.log_scale = features.log_scale.masked_fill(hidden, kNoScale);
  return features;
}

// ε as seen beside numbers that are relative to exp(query scale + state scale).
Tensor add_epsilon(const Tensor& total, double epsilon, const Tensor& query_scale, const Tensor& state_scale) {
  return query_scale.defined() ? total + epsilon * (-(query_scale + state_scale)).exp() : total + epsilon;
}

LinearOutput divided(const Tensor& sums, double epsilon, const Tensor& query_scale, const Tensor& state_scale) {
  const auto value_dim = sums.size(2) - 1;
  const auto total = add_epsilon(sums.narrow(2, value_dim, 1), epsilon, query_scale, state_scale);
  auto output = sums.narrow(2, 0, value_dim) / total;
  if (!state_scale.defined()) return {output, total};
  return {output, at::cat({total, state_scale.expand_as(total)}, 2)};
}

// The inputs as [R,·,·], cut into stretches, in the type of the sums.
class Sequences {
 public:
  Sequences(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& key_lengths, const FeatureMap& map)
      : q_(merge_heads(q)), k_(merge_heads(k)), v_(merge_heads(v)), dtype_(map.sum_dtype(q.scalar_type())) {
    if (const auto hidden = Mask{false, key_lengths}.hidden_keys(k.size(2)))
      hidden_ = merge_heads(hidden->expand({k.size(0), k.size(1), k.size(2), 1}));
  }

  int64_t query_len() const { return q_.size(1); }
  int64_t key_len() const { return k_.size(1); }
  at::TensorOptions options() const { return q_.options().dtype(dtype_); }

  Tensor q(int64_t begin, int64_t size) const { return q_.narrow(1, begin, size).to(dtype_); }
  Tensor k(int64_t begin, int64_t size) const { return k_.narrow(1, begin, size).to(dtype_); }
  Tensor v(int64_t begin, int64_t size) const {
    const auto v = v_.narrow(1, begin, size).to(dtype_);
    return hidden_.defined() ? v.masked_fill(hidden(begin, size), 0) : v;
  }
  Tensor hidden(int64_t begin, int64_t size) const { return hidden_.defined() ? hidden_.narrow(1, begin, size) : hidden_; }

 private:
  Tensor q_, k_, v_, hidden_;
  at::ScalarType dtype_;
};

void for_each_stretch(int64_t length, int64_t size, const std::function<void(int64_t, int64_t)>& work) {
  for (int64_t begin = 0; begin < length; begin += size) work(begin, std::min(size, length - begin));
}
void for_each_stretch_backwards(int64_t length, int64_t size, const std::function<void(int64_t, int64_t)>& work) {
  for (int64_t begin = (length - 1) / size * size; begin >= 0; begin -= size) work(begin, std::min(size, length - begin));
}

// One chunk of the causal form. Its scores are φ(q_i)·φ(k_j), j ≤ i, relative to the scale of row i's own state.
struct Chunk {
  Tensor q, k, v;  // [R,C,D], [R,C,D], [R,C,M+1]
  Features features_q, features_k;
  Tensor state_scale;  // [R,C,1]: of the state after each position
  Tensor key_weights;  // exponent of key j beside row i, [R,C,C]; undefined for maps that do not scale

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
  // Of the scores, from gradients of rows and what the keys gave to them.
  Tensor score_gradients(const Tensor& of_rows, const Tensor& values) const {
    return scaled(at::bmm(of_rows, values.transpose(1, 2)), key_weights).tril_();
  }
  // Of each key in the sum of each row.
  Tensor weights() const {
    return (key_weights.defined() ? key_weights.exp() : at::ones({q.size(0), q.size(1), q.size(1)}, q.options())).tril_();
  }
};

const kernels::LinearImplementation* implementation_for(const Tensor& q, const Tensor& v, const std::string& feature_map,
                                                        const std::string& wanted) {
  return kernels::find_linear({wanted, feature_map, q.scalar_type(), q.device().type(), q.size(3), v.size(3)});
}

std::tuple<Tensor, Tensor> forward_on(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                      const std::optional<Tensor>& key_lengths, const std::string& feature_map, double epsilon,
                                      const std::optional<Tensor>& projection, int64_t chunk, const std::string& kernel) {
  const auto map = make_feature_map(feature_map, projection);
  if (const auto* own = implementation_for(q, v, feature_map, kernel))
    return own->forward(q, k, v, causal, key_lengths, {feature_map, projection}, epsilon);
  const Sequences in(q, k, v, key_lengths, *map);
  const auto rows = q.size(0) * q.size(1);
  const auto output = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  const auto normalizer = at::empty({q.size(0), q.size(1), q.size(2), map->scales() ? 2 : 1}, in.options());
  const auto merged_output = merge_heads(output), merged_normalizer = merge_heads(normalizer);
  const auto store = [&](int64_t begin, int64_t size, const LinearOutput& part) {
    merged_output.narrow(1, begin, size).copy_(part.output);
    merged_normalizer.narrow(1, begin, size).copy_(part.normalizer);
  };
  auto state = LinearState::zeros(*map, rows, q.size(3), v.size(3), in.options());
  if (!causal) {
    for_each_stretch(in.key_len(), kBlock, [&](int64_t begin, int64_t size) {
      state.add(*map, in.k(begin, size), in.v(begin, size), in.hidden(begin, size));
    });
    for_each_stretch(in.query_len(), kBlock,
                     [&](int64_t begin, int64_t size) { store(begin, size, read(state, *map, in.q(begin, size), epsilon)); });
    return {output, normalizer};
  }
  for_each_stretch(in.query_len(), chunk, [&](int64_t begin, int64_t size) {
    const Chunk part(in, *map, begin, size, state.log_scale);
    auto sums = scaled(at::bmm(part.features_q.phi, state.sums), difference(state.log_scale, part.state_scale));
    sums += lower_triangular_product(part.scores(), part.v);
    store(begin, size, divided(sums, epsilon, part.features_q.log_scale, part.state_scale));
    state.add(*map, part.k, part.v.narrow(2, 0, v.size(3)), in.hidden(begin, size));
  });
  return {output, normalizer};
}

// What backward knows of each row: the gradient of its numerator and, once the queries are done, of its normalizer, both relative
// to the scales of query and state.
class RowGradients {
 public:
  RowGradients(const Tensor& gradient, const Tensor& normalizer)
      : gradient_(merge_heads(gradient)),
        normalizer_(merge_heads(normalizer)),
        of_normalizer_(at::empty_like(normalizer_.narrow(2, 0, 1), at::MemoryFormat::Contiguous)) {}

  Tensor of_numerator(int64_t begin, int64_t size) const {
    const auto total = normalizer(begin, size);
    return gradient_.narrow(1, begin, size).to(total.scalar_type()) / total;
  }
  // From a = S g, the numerator's part of the gradient of φ(q): g·out = φ(q)·a / normalizer. The rounded output would do, but
  // this gradient is a difference of almost equal numbers.
  Tensor set_of_normalizer(int64_t begin, const Tensor& phi_q, const Tensor& a) const {
    const auto part = of_normalizer_.narrow(1, begin, a.size(1));
    part.copy_((phi_q * a).sum(2, /*keepdim=*/true).div_(normalizer(begin, a.size(1))).neg_());
    return part;
  }
  // Both, [R,T,M+1].
  Tensor operator()(int64_t begin, int64_t size) const {
    return at::cat({of_numerator(begin, size), of_normalizer_.narrow(1, begin, size)}, 2);
  }
  // Of the state that each row saw.
  Tensor state_scale(int64_t begin, int64_t size) const {
    return normalizer_.size(2) == 2 ? normalizer_.narrow(1, begin, size).narrow(2, 1, 1) : Tensor();
  }

 private:
  Tensor normalizer(int64_t begin, int64_t size) const { return normalizer_.narrow(1, begin, size).narrow(2, 0, 1); }

  Tensor gradient_, normalizer_, of_normalizer_;
};

// Where the gradients go, hidden keys' as zeros.
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
  for_each_stretch(in.key_len(), kBlock, [&](int64_t begin, int64_t size) {
    keys.add(map, in.k(begin, size), in.v(begin, size), in.hidden(begin, size));
  });
  auto queries = at::zeros_like(keys.sums);  // R, and its normalizer's part in the last column
  for_each_stretch(in.query_len(), kBlock, [&](int64_t begin, int64_t size) {
    const auto q = in.q(begin, size);
    const auto features = map.apply(q);
    auto of_phi = at::bmm(row_gradients.of_numerator(begin, size), keys.sums.narrow(2, 0, value_dim).transpose(1, 2));
    const auto of_normalizer = row_gradients.set_of_normalizer(begin, features.phi, of_phi);
    of_phi += of_normalizer * keys.sums.narrow(2, value_dim, 1).transpose(1, 2);
    Gradients::store(out.q, begin, map.gradient(q, features, of_phi));
    queries.baddbmm_(features.phi.transpose(1, 2), row_gradients(begin, size));
  });
  for_each_stretch(in.key_len(), kBlock, [&](int64_t begin, int64_t size) {
    const auto k = in.k(begin, size), hidden = in.hidden(begin, size);
    const auto features = key_features(map, k, hidden);
    const auto relative = difference(features.log_scale, keys.log_scale);
    const auto of_phi = scaled(at::bmm(with_ones(in.v(begin, size)), queries.transpose(1, 2)), relative);
    Gradients::store(out.k, begin, map.gradient(k, features, of_phi), hidden);
    Gradients::store(out.v, begin, scaled(at::bmm(features.phi, queries.narrow(2, 0, value_dim)), relative), hidden);
  });
}

void causal_backward(const Sequences& in, const FeatureMap& map, const RowGradients& row_gradients, int64_t chunk,
                     const Gradients& out) {
  const auto value_dim = out.v.size(3);
  auto keys = LinearState::zeros(map, out.q.size(0) * out.q.size(1), out.q.size(3), value_dim, in.options());
  auto queries = at::zeros_like(keys.sums);  // R, and its normalizer's part in the last column
  for_each_stretch(in.query_len(), chunk, [&](int64_t begin, int64_t size) {
    const Chunk part(in, map, begin, size, keys.log_scale);
    const auto carried = difference(keys.log_scale, part.state_scale);
    const auto of_numerator = row_gradients.of_numerator(begin, size);
    auto of_phi = scaled(at::bmm(of_numerator, keys.sums.narrow(2, 0, value_dim).transpose(1, 2)), carried);
    of_phi += lower_triangular_product(part.score_gradients(of_numerator, part.v.narrow(2, 0, value_dim)), part.features_k.phi);
    const auto of_normalizer = row_gradients.set_of_normalizer(begin, part.features_q.phi, of_phi);
    auto key_sums = scaled(keys.sums.narrow(2, value_dim, 1).transpose(1, 2), carried);
    key_sums = key_sums + lower_triangular_product(part.weights(), part.features_k.phi);
    Gradients::store(out.q, begin, map.gradient(part.q, part.features_q, of_phi.addcmul_(of_normalizer, key_sums)));
    keys.add(map, part.k, part.v.narrow(2, 0, value_dim), in.hidden(begin, size));
  });
  Tensor later_scale;  // what R is relative to: exp(-later_scale)
  for_each_stretch_backwards(in.query_len(), chunk, [&](int64_t begin, int64_t size) {
    const auto scale_before = row_gradients.state_scale(begin, 1);  // no larger than any row's in the chunk
    const Chunk part(in, map, begin, size, scale_before);
    const auto gradients = row_gradients(begin, size), hidden = in.hidden(begin, size);
    if (scale_before.defined() && !later_scale.defined()) later_scale = row_gradients.state_scale(begin + size - 1, 1);
    const auto relative = difference(part.features_k.log_scale, later_scale);
    auto of_phi = scaled(at::bmm(part.v, queries.transpose(1, 2)), relative);
    of_phi += upper_triangular_product(part.score_gradients(gradients, part.v).transpose(1, 2), part.features_q.phi);
    Gradients::store(out.k, begin, map.gradient(part.k, part.features_k, of_phi), hidden);
    auto of_v = scaled(at::bmm(part.features_k.phi, queries.narrow(2, 0, value_dim)), relative);
    of_v += upper_triangular_product(part.scores().transpose(1, 2), gradients.narrow(2, 0, value_dim));
    Gradients::store(out.v, begin, of_v, hidden);
    queries = scaled(queries, difference(scale_before, later_scale));
    queries.baddbmm_(scaled(part.features_q.phi, difference(scale_before, part.state_scale)).transpose(1, 2), gradients);
    later_scale = scale_before;
  });
}

std::tuple<Tensor, Tensor, Tensor> backward_on(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                                               const Tensor& normalizer, bool causal, const std::optional<Tensor>& key_lengths,
                                               const std::string& feature_map, const std::optional<Tensor>& projection,
                                               int64_t chunk, const std::string& kernel) {
  const auto map = make_feature_map(feature_map, projection);
  if (const auto* own = implementation_for(q, v, feature_map, kernel))
    return own->backward(gradient, q, k, v, normalizer, causal, key_lengths, {feature_map, projection});
  const Sequences in(q, k, v, key_lengths, *map);
  const RowGradients row_gradients(gradient, normalizer);
  const Gradients gradients(q, k, v);
  if (causal) causal_backward(in, *map, row_gradients, chunk, gradients);
  else full_backward(in, *map, row_gradients, gradients);
  return {gradients.q, gradients.k, gradients.v};
}

// What a caller from Python may get wrong; the harness has checked it before.
void check(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const std::optional<Tensor>& key_lengths,
           int64_t chunk) {
  const auto shape_of = [](const char* name, const Tensor& x) {
    TORCH_CHECK_VALUE(x.dim() == 4, "linear_attention: ", name, " has ", x.dim(),
                      " dimensions, expected [batch, heads, length, dim]");
  };
  shape_of("q", q), shape_of("k", k), shape_of("v", v);
  for (const auto& [name, x] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
    TORCH_CHECK_VALUE(x->scalar_type() == q.scalar_type() && x->device() == q.device(), "linear_attention: ", name, " is ",
                      x->scalar_type(), " on ", x->device(), ", expected ", q.scalar_type(), " on ", q.device(), " as q");
    TORCH_CHECK_VALUE(x->sym_size(0) == q.sym_size(0) && x->sym_size(1) == q.sym_size(1), "linear_attention: ", name,
                      " has shape ", x->sym_sizes(), ", expected batch and heads of q, whose shape is ", q.sym_sizes());
  }
  TORCH_CHECK_VALUE(at::isFloatingType(q.scalar_type()), "linear_attention: q is ", q.scalar_type(),
                    ", expected a floating type");
  TORCH_CHECK_VALUE(k.sym_size(3) == q.sym_size(3), "linear_attention: k has dim ", k.sym_size(3), ", expected ", q.sym_size(3),
                    " as q");
  TORCH_CHECK_VALUE(v.sym_size(2) == k.sym_size(2), "linear_attention: v has length ", v.sym_size(2), ", expected ",
                    k.sym_size(2), " as k");
  TORCH_CHECK_VALUE(!causal || k.sym_size(2) == q.sym_size(2),
                    "linear_attention: causal needs as many keys as queries, but k has length ", k.sym_size(2),
                    " and q has length ", q.sym_size(2));
  TORCH_CHECK_VALUE(chunk >= 1, "linear_attention: chunk = ", chunk, ", expected at least 1");
  if (!key_lengths) return;
  TORCH_CHECK_VALUE(key_lengths->scalar_type() == at::kLong && key_lengths->device() == q.device(),
                    "linear_attention: key_lengths is ", key_lengths->scalar_type(), " on ", key_lengths->device(),
                    ", expected int64 on ", q.device());
  TORCH_CHECK_VALUE(key_lengths->dim() == 1 && key_lengths->sym_size(0) == k.sym_size(0),
                    "linear_attention: key_lengths has shape ", key_lengths->sym_sizes(), ", expected [batch] = [", k.sym_size(0),
                    "]");
}

std::tuple<Tensor, Tensor> forward_shapes(const Tensor& q, const Tensor&, const Tensor& v, bool, const std::optional<Tensor>&,
                                          const std::string& feature_map, double, const std::optional<Tensor>& projection,
                                          int64_t, const std::string&) {
  const auto rows = q.sym_sizes().slice(0, 3);
  auto output = rows.vec(), normalizer = rows.vec();
  output.push_back(v.sym_size(3));
  const auto map = make_feature_map(feature_map, projection);
  normalizer.emplace_back(map->scales() ? 2 : 1);
  return {at::empty_symint(output, q.options()),
          at::empty_symint(normalizer, q.options().dtype(map->sum_dtype(q.scalar_type())))};
}

std::tuple<Tensor, Tensor, Tensor> backward_shapes(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                                                   const Tensor&, bool, const std::optional<Tensor>&, const std::string&,
                                                   const std::optional<Tensor>&, int64_t, const std::string&) {
  const auto like = [](const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  return {like(q), like(k), like(v)};
}

template <class Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

std::tuple<Tensor, Tensor> call_forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                        const std::optional<Tensor>& key_lengths, const std::string& feature_map, double epsilon,
                                        const std::optional<Tensor>& projection, int64_t chunk, const std::string& kernel) {
  static const auto op = find_operator<decltype(forward_on)>("attn::_linear_attention");
  return op.call(q, k, v, causal, key_lengths, feature_map, epsilon, projection, chunk, kernel);
}

class LinearAttention : public torch::autograd::Function<LinearAttention> {
 public:
  using Context = torch::autograd::AutogradContext;

  static torch::autograd::variable_list forward(Context* context, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                                const std::optional<Tensor>& key_lengths, const std::string& feature_map,
                                                double epsilon, const std::optional<Tensor>& projection, int64_t chunk,
                                                const std::string& kernel) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [output, normalizer] = call_forward(q, k, v, causal, key_lengths, feature_map, epsilon, projection, chunk, kernel);
    context->save_for_backward({q, k, v, normalizer, key_lengths.value_or(Tensor()), projection.value_or(Tensor())});
    context->saved_data["causal"] = causal;
    context->saved_data["feature_map"] = feature_map;
    context->saved_data["chunk"] = chunk;
    context->saved_data["kernel"] = kernel;
    context->mark_non_differentiable({normalizer});
    return {output, normalizer};
  }

  static torch::autograd::variable_list backward(Context* context, const torch::autograd::variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_on)>("attn::_linear_attention_backward");
    const auto saved = context->get_saved_variables();
    const auto optional = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
    const auto [of_q, of_k, of_v] =
        op.call(gradients[0], saved[0], saved[1], saved[2], saved[3], context->saved_data["causal"].toBool(), optional(saved[4]),
                context->saved_data["feature_map"].toStringRef(), optional(saved[5]), context->saved_data["chunk"].toInt(),
                context->saved_data["kernel"].toStringRef());
    return {of_q, of_k, of_v, {}, {}, {}, {}, {}, {}, {}};
  }
};

std::tuple<Tensor, Tensor> differentiable(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                          const std::optional<Tensor>& key_lengths, const std::string& feature_map,
                                          double epsilon, const std::optional<Tensor>& projection, int64_t chunk,
                                          const std::string& kernel) {
  const auto results = LinearAttention::apply(q, k, v, causal, key_lengths, feature_map, epsilon, projection, chunk, kernel);
  return {results[0], results[1]};
}

Tensor linear_attention_operator(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                 const std::optional<Tensor>& key_lengths, c10::string_view feature_map, double epsilon,
                                 const std::optional<Tensor>& projection, int64_t chunk, c10::string_view kernel) {
  check(q, k, v, causal, key_lengths, chunk);
  return std::get<0>(
      call_forward(q, k, v, causal, key_lengths, std::string(feature_map), epsilon, projection, chunk, std::string(kernel)));
}

void check_step(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sums, const Tensor& normalizers,
                const std::string& feature_map) {
  const auto map = make_feature_map(feature_map);
  const auto expect = [&](const char* name, const Tensor& x, const std::vector<c10::SymInt>& shape, at::ScalarType dtype) {
    TORCH_CHECK_VALUE(x.sym_sizes() == c10::SymIntArrayRef(shape) && x.scalar_type() == dtype && x.device() == q.device(),
                      "linear_attention_step: ", name, " is ", x.scalar_type(), " ", x.sym_sizes(), " on ", x.device(),
                      ", expected ", dtype, " ", c10::SymIntArrayRef(shape), " on ", q.device());
  };
  TORCH_CHECK_VALUE(q.dim() == 4 && v.dim() == 4, "linear_attention_step: q and v have ", q.dim(), " and ", v.dim(),
                    " dimensions, expected [batch, heads, 1, dim]");
  const auto batch = q.sym_size(0), heads = q.sym_size(1), dim = q.sym_size(3), value_dim = v.sym_size(3);
  const auto dtype = q.scalar_type(), sum_dtype = map->sum_dtype(dtype);
  const c10::SymInt features = map->count(dim.guard_int(__FILE__, __LINE__));
  expect("q", q, {batch, heads, 1, dim}, dtype);
  expect("k", k, {batch, heads, 1, dim}, dtype);
  expect("v", v, {batch, heads, 1, value_dim}, dtype);
  expect("sums", sums, {batch, heads, features, value_dim}, sum_dtype);
  expect("normalizers", normalizers, {batch, heads, features}, sum_dtype);
  TORCH_CHECK_VALUE(sums.is_contiguous() && normalizers.is_contiguous(),
                    "linear_attention_step: sums and normalizers must be contiguous, as they change in place");
  TORCH_CHECK_VALUE(!map->scales(), "linear_attention_step: feature map '", feature_map, "' has scales, which sums do not hold");
}

Tensor step_on(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sums, const Tensor& normalizers,
               c10::string_view feature_map, double epsilon, c10::string_view kernel) {
  const std::string map_name(feature_map);
  check_step(q, k, v, sums, normalizers, map_name);
  if (const auto* own = implementation_for(q, v, map_name, std::string(kernel)))
    return own->step(q, k, v, sums, normalizers, {map_name}, epsilon);
  const auto map = make_feature_map(map_name);
  const auto dtype = sums.scalar_type();
  const auto features = [&](const Tensor& x) {
    return map->apply(merge_heads(x).to(dtype)).phi.view({q.size(0), q.size(1), 1, -1});
  };
  const auto phi = features(q), kappa = features(k);
  sums.add_(at::matmul(kappa.transpose(2, 3), v.to(dtype)));
  normalizers.add_(kappa.squeeze(2));
  return at::matmul(phi, sums).div_(at::matmul(phi, normalizers.unsqueeze(3)).add_(epsilon)).to(q.scalar_type());
}

Tensor step_shape(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sums, const Tensor& normalizers,
                  c10::string_view feature_map, double, c10::string_view) {
  check_step(q, k, v, sums, normalizers, std::string(feature_map));
  return at::empty_symint(v.sym_sizes(), v.options());
}

TORCH_LIBRARY_FRAGMENT(attn, library) {
  library.def(
      "linear_attention_step(Tensor q, Tensor k, Tensor v, Tensor(a!) sums, Tensor(b!) normalizers, str feature_map=\"elu\", "
      "float eps=1e-6, str implementation=\"auto\") -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "linear_attention(Tensor q, Tensor k, Tensor v, bool causal, Tensor? key_lengths=None, str feature_map=\"elu\", float "
      "eps=1e-6, "
      "Tensor? projection=None, int chunk=128, str implementation=\"auto\") -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_linear_attention(Tensor q, Tensor k, Tensor v, bool causal, Tensor? key_lengths, str feature_map, float eps, "
      "Tensor? projection, int chunk, str implementation=\"auto\") -> (Tensor output, Tensor normalizer)",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_linear_attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor normalizer, bool causal, Tensor? "
      "key_lengths, "
      "str feature_map, Tensor? projection, int chunk, str implementation=\"auto\") -> (Tensor q_gradient, Tensor k_gradient, "
      "Tensor "
      "v_gradient)",
      {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(attn, CompositeImplicitAutograd, library) { library.impl("linear_attention", linear_attention_operator); }
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("linear_attention_step", step_on);
  library.impl("_linear_attention", forward_on);
  library.impl("_linear_attention_backward", backward_on);
}
TORCH_LIBRARY_IMPL(attn, Meta, library) {
  library.impl("linear_attention_step", step_shape);
  library.impl("_linear_attention", forward_shapes);
  library.impl("_linear_attention_backward", backward_shapes);
}
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("linear_attention_step", torch::autograd::autogradNotImplementedFallback());  // decoding
  library.impl("_linear_attention", differentiable);
  library.impl("_linear_attention_backward", torch::autograd::autogradNotImplementedFallback());  // no gradients of gradients
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> causal_linear_gradients(const Tensor& output_gradient, const Tensor& q, const Tensor& k,
                                                           const Tensor& v, const Tensor& normalizer,
                                                           const std::optional<Tensor>& key_lengths,
                                                           const std::string& feature_map, int64_t chunk) {
  return backward_on(output_gradient, q, k, v, normalizer, true, key_lengths, feature_map, {}, chunk, "composed");
}

LinearState LinearState::zeros(const FeatureMap& map, int64_t rows, int64_t head_dim, int64_t value_dim,
                               const at::TensorOptions& options) {
  LinearState state{at::zeros({rows, map.count(head_dim), value_dim + 1}, options), {}};
  if (map.scales()) state.log_scale = at::full({rows, 1, 1}, kNoScale, options);
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

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, const LinearAttentionOptions& o) {
  check(q, k, v, o.causal, o.key_lengths, o.chunk);
  return std::get<0>(call_forward(q, k, v, o.causal, o.key_lengths, o.feature_map, o.epsilon, o.projection, o.chunk, o.kernel));
}

}  // namespace attn
