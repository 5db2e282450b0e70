// The PyTorch operators of linear attention: schemas, checks of arguments, autograd and shapes. `forward`, `backward` and `step`
// choose the implementation.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "attn/check_tensor.h"
#include "attn/linear/composed.h"
#include "attn/linear/implementation.h"
#include "attn/linear/linear_attention.h"
#include "attn/without_autocast.h"

namespace attn {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- arguments

// Both forward() and backward() call this, because the private operators can be called from Python as well as the public one.
// Throws c10::ValueError for wrong arguments.
void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const std::optional<Tensor>& key_lengths,
                     int64_t chunk) {
  const auto shape_of = [](const char* name, const Tensor& x) {
    TORCH_CHECK_VALUE(x.dim() == 4, "linear_attention: ", name, " has ", x.dim(),
                      " dimensions, expected [batch, heads, length, dim]");
  };
  shape_of("q", q), shape_of("k", k), shape_of("v", v);
  for (const auto& [name, x] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
    TORCH_CHECK_VALUE(x->scalar_type() == q.scalar_type() && x->device() == q.device(), "linear_attention: ", name, " is ",
                      x->scalar_type(), " on ", x->device(), ", expected ", q.scalar_type(), " on ", q.device(), " as in q");
    TORCH_CHECK_VALUE(x->sym_size(0) == q.sym_size(0) && x->sym_size(1) == q.sym_size(1), "linear_attention: ", name,
                      " has shape ", x->sym_sizes(), ", expected batch and heads of q, whose shape is ", q.sym_sizes());
  }
  TORCH_CHECK_VALUE(at::isFloatingType(q.scalar_type()), "linear_attention: q is ", q.scalar_type(),
                    ", expected a floating type");
  TORCH_CHECK_VALUE(k.sym_size(3) == q.sym_size(3), "linear_attention: k has dim ", k.sym_size(3), ", expected ", q.sym_size(3),
                    " as in q");
  TORCH_CHECK_VALUE(v.sym_size(2) == k.sym_size(2), "linear_attention: v has length ", v.sym_size(2), ", expected ",
                    k.sym_size(2), " as in k");
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

// Throws c10::ValueError for wrong arguments of the backward pass.
void check_backward_arguments(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Tensor& normalizer, bool causal, const std::optional<Tensor>& key_lengths,
                              const std::string& feature_map, const std::optional<Tensor>& projection, int64_t chunk) {
  check_arguments(q, k, v, causal, key_lengths, chunk);
  const auto map = make_feature_map(feature_map, projection);
  const auto batch = q.sym_size(0), heads = q.sym_size(1), length = q.sym_size(2);
  check_tensor("_linear_attention_backward: grad_output", grad_output, {batch, heads, length, v.sym_size(3)}, q.scalar_type(), q);
  check_tensor("_linear_attention_backward: normalizer", normalizer, {batch, heads, length, map->scales() ? 2 : 1},
               map->accumulator_dtype(q.scalar_type()), q);
}

void check_step_arguments(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sums, const Tensor& normalizers,
                          const std::string& feature_map) {
  const auto map = make_feature_map(feature_map);
  TORCH_CHECK_VALUE(q.dim() == 4 && v.dim() == 4, "linear_attention_step: q and v have ", q.dim(), " and ", v.dim(),
                    " dimensions, expected [batch, heads, 1, dim]");
  const auto batch = q.sym_size(0), heads = q.sym_size(1), dim = q.sym_size(3), value_dim = v.sym_size(3);
  const auto dtype = q.scalar_type(), state_dtype = map->accumulator_dtype(dtype);
  const c10::SymInt features = map->count(dim.guard_int(__FILE__, __LINE__));
  check_tensor("linear_attention_step: q", q, {batch, heads, 1, dim}, dtype, q);
  check_tensor("linear_attention_step: k", k, {batch, heads, 1, dim}, dtype, q);
  check_tensor("linear_attention_step: v", v, {batch, heads, 1, value_dim}, dtype, q);
  check_tensor("linear_attention_step: sums", sums, {batch, heads, features, value_dim}, state_dtype, q);
  check_tensor("linear_attention_step: normalizers", normalizers, {batch, heads, features}, state_dtype, q);
  TORCH_CHECK_VALUE(sums.is_contiguous() && normalizers.is_contiguous(),
                    "linear_attention_step: sums and normalizers must be contiguous, as they change in place");
  TORCH_CHECK_VALUE(!map->scales(), "linear_attention_step: feature map '", feature_map,
                    "' has scales, which the tensor sums does not hold");
}

// ---------------------------------------------------------------- computation

// Throws c10::ValueError for an unknown feature map and for a projection that is not the map's.
LinearArguments arguments_of(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                             const std::optional<Tensor>& key_lengths, const std::string& feature_map, double epsilon,
                             const std::optional<Tensor>& projection) {
  LinearArguments arguments{q, k, v, causal, key_lengths, {parse_feature_map(feature_map), projection}, epsilon};
  make_feature_map(arguments.map);
  return arguments;
}

// Null if the computation is composed of ATen operations. `gradients` is as in ImplementationRequest.
const LinearImplementation* find_implementation(const Tensor& q, const Tensor& v, FeatureMapKind map, const std::string& wanted,
                                                bool gradients) {
  return linear_implementations().find(
      {{wanted, q.scalar_type(), q.device().type(), q.size(3), v.size(3), gradients, q.device().index()}, map});
}

// Sets the rows of x [B,…] to `value` where a batch entry has no visible key. Their output is zero, but with ε = 0 it is computed
// as 0/0.
void fill_empty_entries(const Tensor& x, const LinearArguments& arguments, double value) {
  if (arguments.epsilon == 0 && arguments.key_lengths) x.masked_fill_((*arguments.key_lengths <= 0).view({-1, 1, 1, 1}), value);
}

std::tuple<Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                   const std::optional<Tensor>& key_lengths, const std::string& feature_map, double epsilon,
                                   const std::optional<Tensor>& projection, int64_t chunk, const std::string& wanted,
                                   bool gradients) {
  check_arguments(q, k, v, causal, key_lengths, chunk);
  const auto arguments = arguments_of(q, k, v, causal, key_lengths, feature_map, epsilon, projection);
  const auto* implementation = find_implementation(q, v, arguments.map.kind, wanted, gradients);
  const WithoutAutocast guard;
  auto results = implementation ? implementation->forward(arguments) : composed_linear_forward(arguments, chunk);
  auto& [output, normalizer] = results;
  fill_empty_entries(output, arguments, 0);
  if (normalizer.defined() && normalizer.numel() > 0) fill_empty_entries(normalizer.narrow(3, 0, 1), arguments, 1);
  return results;
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const Tensor& normalizer, bool causal, const std::optional<Tensor>& key_lengths,
                                            const std::string& feature_map, double epsilon,
                                            const std::optional<Tensor>& projection, int64_t chunk, const std::string& wanted) {
  check_backward_arguments(grad_output, q, k, v, normalizer, causal, key_lengths, feature_map, projection, chunk);
  const auto arguments = arguments_of(q, k, v, causal, key_lengths, feature_map, epsilon, projection);
  const auto* implementation = find_implementation(q, v, arguments.map.kind, wanted, /*gradients=*/true);
  const WithoutAutocast guard;
  auto results = implementation ? implementation->backward(arguments, grad_output, normalizer)
                                : composed_linear_backward(arguments, grad_output, normalizer, chunk);
  for (const auto* gradient : {&std::get<0>(results), &std::get<1>(results), &std::get<2>(results)})
    fill_empty_entries(*gradient, arguments, 0);
  return results;
}

Tensor step(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sums, const Tensor& normalizers,
            c10::string_view feature_map, double epsilon, c10::string_view wanted) {
  check_step_arguments(q, k, v, sums, normalizers, std::string(feature_map));
  const auto map = parse_feature_map(std::string(feature_map));
  // Autograd must notice that a tensor has changed that it has saved for a backward pass.
  for (const auto* state : {&sums, &normalizers})
    if (!state->is_inference()) state->unsafeGetTensorImpl()->bump_version();
  if (const auto* implementation = find_implementation(q, v, map, std::string(wanted), /*gradients=*/false))
    return implementation->step(q, k, v, {sums, normalizers}, {map}, epsilon);
  const WithoutAutocast guard;
  return composed_linear_step(q, k, v, {sums, normalizers}, map, epsilon);
}

// ---------------------------------------------------------------- shapes

std::tuple<Tensor, Tensor> forward_meta(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                        const std::optional<Tensor>& key_lengths, const std::string& feature_map, double,
                                        const std::optional<Tensor>& projection, int64_t chunk, const std::string&, bool) {
  check_arguments(q, k, v, causal, key_lengths, chunk);
  const auto rows = q.sym_sizes().slice(0, 3);
  auto output = rows.vec(), normalizer = rows.vec();
  output.push_back(v.sym_size(3));
  const auto map = make_feature_map(feature_map, projection);
  normalizer.emplace_back(map->scales() ? 2 : 1);
  return {at::empty_symint(output, q.options()),
          at::empty_symint(normalizer, q.options().dtype(map->accumulator_dtype(q.scalar_type())))};
}

std::tuple<Tensor, Tensor, Tensor> backward_meta(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                                 const Tensor& normalizer, bool causal, const std::optional<Tensor>& key_lengths,
                                                 const std::string& feature_map, double, const std::optional<Tensor>& projection,
                                                 int64_t chunk, const std::string&) {
  check_backward_arguments(grad_output, q, k, v, normalizer, causal, key_lengths, feature_map, projection, chunk);
  const auto like = [](const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  return {like(q), like(k), like(v)};
}

Tensor step_meta(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sums, const Tensor& normalizers,
                 c10::string_view feature_map, double, c10::string_view) {
  check_step_arguments(q, k, v, sums, normalizers, std::string(feature_map));
  return at::empty_symint(v.sym_sizes(), v.options());
}

// ---------------------------------------------------------------- autograd

template <class Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

std::tuple<Tensor, Tensor> call_forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                        const std::optional<Tensor>& key_lengths, const std::string& feature_map, double epsilon,
                                        const std::optional<Tensor>& projection, int64_t chunk, const std::string& wanted,
                                        bool gradients) {
  static const auto op = find_operator<decltype(forward)>("attn::_linear_attention");
  return op.call(q, k, v, causal, key_lengths, feature_map, epsilon, projection, chunk, wanted, gradients);
}

class LinearAttention : public torch::autograd::Function<LinearAttention> {
 public:
  using Context = torch::autograd::AutogradContext;

  static torch::autograd::variable_list forward(Context* context, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                                const std::optional<Tensor>& key_lengths, const std::string& feature_map,
                                                double epsilon, const std::optional<Tensor>& projection, int64_t chunk,
                                                const std::string& wanted, bool gradients) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [output, normalizer] =
        call_forward(q, k, v, causal, key_lengths, feature_map, epsilon, projection, chunk, wanted, gradients);
    context->save_for_backward({q, k, v, normalizer, key_lengths.value_or(Tensor()), projection.value_or(Tensor())});
    context->saved_data["causal"] = causal;
    context->saved_data["feature_map"] = feature_map;
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["chunk"] = chunk;
    context->saved_data["implementation"] = wanted;
    context->mark_non_differentiable({normalizer});
    return {output, normalizer};
  }

  static torch::autograd::variable_list backward(Context* context, const torch::autograd::variable_list& gradients) {
    static const auto op = find_operator<decltype(attn::backward)>("attn::_linear_attention_backward");
    const auto saved = context->get_saved_variables();
    const auto optional = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
    const auto [grad_q, grad_k, grad_v] =
        op.call(gradients[0], saved[0], saved[1], saved[2], saved[3], context->saved_data["causal"].toBool(), optional(saved[4]),
                context->saved_data["feature_map"].toStringRef(), context->saved_data["epsilon"].toDouble(), optional(saved[5]),
                context->saved_data["chunk"].toInt(), context->saved_data["implementation"].toStringRef());
    return {grad_q, grad_k, grad_v, {}, {}, {}, {}, {}, {}, {}, {}};
  }
};

std::tuple<Tensor, Tensor> forward_autograd(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                            const std::optional<Tensor>& key_lengths, const std::string& feature_map,
                                            double epsilon, const std::optional<Tensor>& projection, int64_t chunk,
                                            const std::string& wanted, bool gradients) {
  const auto results =
      LinearAttention::apply(q, k, v, causal, key_lengths, feature_map, epsilon, projection, chunk, wanted, gradients);
  return {results[0], results[1]};
}

// ---------------------------------------------------------------- registration

Tensor linear_attention_operator(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                 const std::optional<Tensor>& key_lengths, c10::string_view feature_map, double epsilon,
                                 const std::optional<Tensor>& projection, int64_t chunk, c10::string_view wanted) {
  return linear_attention(q, k, v,
                          {causal, key_lengths, std::string(feature_map), epsilon, projection, chunk, std::string(wanted)});
}

TORCH_LIBRARY_FRAGMENT(attn, library) {
  library.def(
      "linear_attention(Tensor q, Tensor k, Tensor v, bool causal, Tensor? key_lengths=None, str feature_map=\"elu\", "
      "float eps=1e-6, Tensor? projection=None, int chunk=128, str implementation=\"auto\") -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "linear_attention_step(Tensor q, Tensor k, Tensor v, Tensor(a!) sums, Tensor(b!) normalizers, str feature_map=\"elu\", "
      "float eps=1e-6, str implementation=\"auto\") -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_linear_attention(Tensor q, Tensor k, Tensor v, bool causal, Tensor? key_lengths, str feature_map, float eps, "
      "Tensor? projection, int chunk, str implementation=\"auto\", bool gradients=True) -> (Tensor output, Tensor normalizer)",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_linear_attention_backward(Tensor grad_output, Tensor q, Tensor k, Tensor v, Tensor normalizer, bool causal, "
      "Tensor? key_lengths, str feature_map, float eps, Tensor? projection, int chunk, str implementation=\"auto\") -> "
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v)",
      {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(attn, CompositeImplicitAutograd, library) { library.impl("linear_attention", linear_attention_operator); }
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("linear_attention_step", step);
  library.impl("_linear_attention", forward);
  library.impl("_linear_attention_backward", backward);
}
TORCH_LIBRARY_IMPL(attn, Meta, library) {
  library.impl("linear_attention_step", step_meta);
  library.impl("_linear_attention", forward_meta);
  library.impl("_linear_attention_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("_linear_attention", forward_autograd);
  // linear_attention_step records no gradients, and linear attention is differentiable only once.
  library.impl("linear_attention_step", torch::autograd::autogradNotImplementedFallback());
  library.impl("_linear_attention_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, const LinearAttentionOptions& o) {
  // Undefined tensors are refused here, because autograd runs before the other checks and cannot handle them.
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"q", q}, {"k", k}, {"v", v}})
    TORCH_CHECK_VALUE(tensor.defined(), "linear_attention: ", name, " is not defined");
  return std::get<0>(call_forward(q, k, v, o.causal, o.key_lengths, o.feature_map, o.epsilon, o.projection, o.chunk,
                                  o.implementation, records_gradients({q, k, v})));
}

}  // namespace attn
