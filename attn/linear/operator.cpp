// The PyTorch operators of linear attention: arguments, checks, computation and shapes. `forward`, `backward` and `step` choose
// the implementation.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <tuple>

#include "attn/check_tensor.h"
#include "attn/linear/composed.h"
#include "attn/linear/implementation.h"
#include "attn/linear/linear_attention.h"
#include "attn/operators/declaration.h"
#include "attn/without_autocast.h"

namespace attn {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- arguments

// What linear_attention takes, and the operators of its passes in addition.
struct CallArguments {
  Tensor q, k, v;
  bool causal = false;
  std::optional<Tensor> key_lengths;
  std::string feature_map;
  double epsilon = 0;
  std::optional<Tensor> projection;
  int64_t chunk = 0;
  std::string implementation;

  static constexpr auto list() {
    using A = CallArguments;
    return std::tuple{argument("q", &A::q),
                      argument("k", &A::k),
                      argument("v", &A::v),
                      argument("causal", &A::causal),
                      argument("key_lengths", &A::key_lengths, "None"),
                      argument("feature_map", &A::feature_map, "\"elu\""),
                      argument("eps", &A::epsilon, "1e-6"),
                      argument("projection", &A::projection, "None"),
                      argument("chunk", &A::chunk, "128"),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

struct ForwardArguments : CallArguments {
  bool gradients = true;  // as in ImplementationRequest

  static constexpr auto list() {
    return std::tuple_cat(CallArguments::list(), std::tuple{argument("gradients", &ForwardArguments::gradients, "True")});
  }
};

struct BackwardArguments : CallArguments {
  Tensor grad_output, normalizer;

  static constexpr auto list() {
    using A = BackwardArguments;
    return std::tuple_cat(std::tuple{argument("grad_output", &A::grad_output), argument("normalizer", &A::normalizer)},
                          CallArguments::list());
  }
};

struct StepArguments {
  Tensor q, k, v, sums, normalizers;
  std::string feature_map;
  double epsilon = 0;
  std::string implementation;

  static constexpr auto list() {
    using A = StepArguments;
    return std::tuple{argument("q", &A::q),
                      argument("k", &A::k),
                      argument("v", &A::v),
                      argument("sums", &A::sums, nullptr, "Tensor(a!)"),
                      argument("normalizers", &A::normalizers, nullptr, "Tensor(b!)"),
                      argument("feature_map", &A::feature_map, "\"elu\""),
                      argument("eps", &A::epsilon, "1e-6"),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

// Every operator checks its arguments, because the private ones can be called from Python, too. Throws c10::ValueError.
void check_call(const CallArguments& a) {
  constexpr auto kPrefix = "linear_attention: ";
  TensorChecks checks(kPrefix);
  checks.check("q", a.q, "BHND");
  checks.check("k", a.k, "BHLD");
  checks.check("v", a.v, "BHLM");
  TORCH_CHECK_VALUE(!a.causal || a.k.sym_size(2) == a.q.sym_size(2), kPrefix,
                    "causal needs as many keys as queries, but k has length ", a.k.sym_size(2), " and q has length ",
                    a.q.sym_size(2));
  TORCH_CHECK_VALUE(a.chunk >= 1, kPrefix, "chunk = ", a.chunk, ", expected at least 1");
  if (a.key_lengths) checks.check_key_lengths(*a.key_lengths);
}

void check_backward(const BackwardArguments& a) {
  check_call(a);
  const auto map = make_feature_map(a.feature_map, a.projection);
  const auto batch = a.q.sym_size(0), heads = a.q.sym_size(1), length = a.q.sym_size(2);
  check_tensor("_linear_attention_backward: grad_output", a.grad_output, {batch, heads, length, a.v.sym_size(3)},
               a.q.scalar_type(), a.q);
  check_tensor("_linear_attention_backward: normalizer", a.normalizer, {batch, heads, length, normalizer_numbers(map->update())},
               map->accumulator_dtype(a.q.scalar_type()), a.q);
}

void check_step(const StepArguments& a) {
  constexpr auto kPrefix = "linear_attention_step: ";
  const auto map = make_feature_map(a.feature_map);
  TensorChecks checks(kPrefix);
  checks.check("q", a.q, "BHND");
  checks.check("k", a.k, "BHND");
  checks.check("v", a.v, "BHNM");
  TORCH_CHECK_VALUE(a.q.sym_size(2) == 1, kPrefix, "q has length ", a.q.sym_size(2), ", expected one token");
  const auto batch = a.q.sym_size(0), heads = a.q.sym_size(1), dim = a.q.sym_size(3);
  const auto state_dtype = map->accumulator_dtype(a.q.scalar_type());
  const c10::SymInt features = map->count(dim.guard_int(__FILE__, __LINE__));
  check_tensor("linear_attention_step: sums", a.sums, {batch, heads, features, a.v.sym_size(3)}, state_dtype, a.q);
  check_tensor("linear_attention_step: normalizers", a.normalizers, {batch, heads, features}, state_dtype, a.q);
  TORCH_CHECK_VALUE(a.sums.is_contiguous() && a.normalizers.is_contiguous(), kPrefix,
                    "sums and normalizers must be contiguous, as they change in place");
  TORCH_CHECK_VALUE(!has_scales(map->update()), kPrefix, "feature map '", a.feature_map,
                    "' has scales, which the tensor sums does not hold");
}

// ---------------------------------------------------------------- computation

// Throws c10::ValueError for an unknown feature map and for a projection that is not the map's.
LinearArguments arguments_of(const CallArguments& a) {
  LinearArguments arguments{a.q, a.k, a.v, a.causal, a.key_lengths, {parse_feature_map(a.feature_map), a.projection}, a.epsilon};
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

std::tuple<Tensor, Tensor> forward(const ForwardArguments& a) {
  check_call(a);
  const auto arguments = arguments_of(a);
  const auto* implementation = find_implementation(a.q, a.v, arguments.map.kind, a.implementation, a.gradients);
  const WithoutAutocast guard;
  auto results = implementation ? implementation->forward(arguments) : composed_linear_forward(arguments, a.chunk);
  auto& [output, normalizer] = results;
  fill_empty_entries(output, arguments, 0);
  if (normalizer.defined() && normalizer.numel() > 0) fill_empty_entries(normalizer.narrow(3, 0, 1), arguments, 1);
  return results;
}

std::tuple<Tensor, Tensor, Tensor> backward(const BackwardArguments& a) {
  check_backward(a);
  const auto arguments = arguments_of(a);
  const auto* implementation = find_implementation(a.q, a.v, arguments.map.kind, a.implementation, /*gradients=*/true);
  const WithoutAutocast guard;
  auto results = implementation ? implementation->backward(arguments, a.grad_output, a.normalizer)
                                : composed_linear_backward(arguments, a.grad_output, a.normalizer, a.chunk);
  for (const auto* gradient : {&std::get<0>(results), &std::get<1>(results), &std::get<2>(results)})
    fill_empty_entries(*gradient, arguments, 0);
  return results;
}

std::tuple<Tensor> step(const StepArguments& a) {
  check_step(a);
  const auto map = parse_feature_map(a.feature_map);
  // Autograd must notice that a tensor has changed that it has saved for a backward pass.
  for (const auto* state : {&a.sums, &a.normalizers})
    if (!state->is_inference()) state->unsafeGetTensorImpl()->bump_version();
  const LinearDecodingState state{a.sums, a.normalizers};
  if (const auto* implementation = find_implementation(a.q, a.v, map, a.implementation, /*gradients=*/false))
    return implementation->step(a.q, a.k, a.v, state, {map}, a.epsilon);
  const WithoutAutocast guard;
  return composed_linear_step(a.q, a.k, a.v, state, map, a.epsilon);
}

// ---------------------------------------------------------------- shapes

std::tuple<Tensor, Tensor> forward_meta(const ForwardArguments& a) {
  check_call(a);
  const auto rows = a.q.sym_sizes().slice(0, 3);
  auto output = rows.vec(), normalizer = rows.vec();
  output.push_back(a.v.sym_size(3));
  const auto map = make_feature_map(a.feature_map, a.projection);
  normalizer.emplace_back(normalizer_numbers(map->update()));
  return {at::empty_symint(output, a.q.options()),
          at::empty_symint(normalizer, a.q.options().dtype(map->accumulator_dtype(a.q.scalar_type())))};
}

std::tuple<Tensor, Tensor, Tensor> backward_meta(const BackwardArguments& a) {
  check_backward(a);
  const auto like = [](const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  return {like(a.q), like(a.k), like(a.v)};
}

std::tuple<Tensor> step_meta(const StepArguments& a) {
  check_step(a);
  return at::empty_symint(a.v.sym_sizes(), a.v.options());
}

// ---------------------------------------------------------------- registration

struct LinearOperator {
  using Arguments = ForwardArguments;
  using BackwardArguments = attn::BackwardArguments;
  static constexpr auto name = "attn::_linear_attention", backward_name = "attn::_linear_attention_backward";

  static BackwardArguments backward_arguments(const Arguments& arguments, const std::vector<Tensor>& results,
                                              const std::vector<Tensor>& gradients) {
    return {arguments, gradients[0], results[1]};
  }
};

std::tuple<Tensor> call(const CallArguments& a) {
  // Undefined tensors are refused here, because autograd runs before the other checks and cannot handle them.
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"q", a.q}, {"k", a.k}, {"v", a.v}})
    TORCH_CHECK_VALUE(tensor.defined(), "linear_attention: ", name, " is not defined");
  static const auto handle = find_operator(LinearOperator::name);
  return call_operator(handle, ForwardArguments{a, records_gradients({a.q, a.k, a.v})})[0];
}

TORCH_LIBRARY_FRAGMENT(attn, library) {
  define<CallArguments>(library, "linear_attention", "Tensor");
  define<StepArguments>(library, "linear_attention_step", "Tensor");
  define<ForwardArguments>(library, "_linear_attention", "(Tensor output, Tensor normalizer)");
  define<BackwardArguments>(library, "_linear_attention_backward", "(Tensor grad_q, Tensor grad_k, Tensor grad_v)");
}
TORCH_LIBRARY_IMPL(attn, CompositeImplicitAutograd, library) { library.impl("linear_attention", kernel<call>()); }
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("linear_attention_step", kernel<step>());
  library.impl("_linear_attention", kernel<forward>());
  library.impl("_linear_attention_backward", kernel<backward>());
}
TORCH_LIBRARY_IMPL(attn, Meta, library) {
  library.impl("linear_attention_step", kernel<step_meta>());
  library.impl("_linear_attention", kernel<forward_meta>());
  library.impl("_linear_attention_backward", kernel<backward_meta>());
}
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("_linear_attention", kernel<Differentiable<LinearOperator>::call>());
  // linear_attention_step records no gradients, and linear attention is differentiable only once.
  library.impl("linear_attention_step", torch::autograd::autogradNotImplementedFallback());
  library.impl("_linear_attention_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, const LinearAttentionOptions& o) {
  return std::get<0>(call({q, k, v, o.causal, o.key_lengths, o.feature_map, o.epsilon, o.projection, o.chunk, o.implementation}));
}

}  // namespace attn
