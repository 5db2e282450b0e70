// The PyTorch operators of recurrent attention: arguments, checks, computation and shapes. `forward`, `backward` and `step`
// choose the implementation.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <cmath>
#include <tuple>

#include "attn/check_tensor.h"
#include "attn/operators/declaration.h"
#include "attn/recurrent/composed.h"
#include "attn/recurrent/implementation.h"
#include "attn/recurrent/recurrent_attention.h"
#include "attn/without_autocast.h"

namespace attn {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- arguments

// The arguments of recurrent_attention, which the operators of its passes take as well.
struct RecurrentCallArguments {
  Tensor q, k, v;
  std::optional<Tensor> g, beta, initial_state, cu_seqlens;
  std::string rule;
  std::optional<double> scale;
  bool normalize = false;
  std::string implementation;

  static constexpr auto list() {
    using A = RecurrentCallArguments;
    return std::tuple{argument("q", &A::q),
                      argument("k", &A::k),
                      argument("v", &A::v),
                      argument("g", &A::g, "None"),
                      argument("beta", &A::beta, "None"),
                      argument("initial_state", &A::initial_state, "None"),
                      argument("cu_seqlens", &A::cu_seqlens, "None"),
                      argument("rule", &A::rule, "\"delta\""),
                      argument("scale", &A::scale, "None"),
                      argument("normalize", &A::normalize, "False"),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

struct RecurrentForwardArguments : RecurrentCallArguments {
  bool gradients = true;  // as in ImplementationRequest

  static constexpr auto list() {
    return std::tuple_cat(RecurrentCallArguments::list(),
                          std::tuple{argument("gradients", &RecurrentForwardArguments::gradients, "True")});
  }
};

struct RecurrentBackwardArguments : RecurrentCallArguments {
  Tensor checkpoints;
  std::optional<Tensor> grad_output, grad_final_state;

  static constexpr auto list() {
    using A = RecurrentBackwardArguments;
    return std::tuple_cat(std::tuple{argument("checkpoints", &A::checkpoints), argument("grad_output", &A::grad_output),
                                     argument("grad_final_state", &A::grad_final_state)},
                          RecurrentCallArguments::list());
  }
};

// Computes the final state alone. python/attnbench/distributed/_recurrent.py needs it for a sequence that is split over
// processes.
struct RecurrentEndArguments {
  Tensor k, v;
  std::optional<Tensor> g, beta, initial_state;
  std::string rule;
  bool normalize = false;
  std::string implementation;

  static constexpr auto list() {
    using A = RecurrentEndArguments;
    return std::tuple{argument("k", &A::k),
                      argument("v", &A::v),
                      argument("g", &A::g, "None"),
                      argument("beta", &A::beta, "None"),
                      argument("initial_state", &A::initial_state, "None"),
                      argument("rule", &A::rule, "\"delta\""),
                      argument("normalize", &A::normalize, "False"),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

struct RecurrentStepArguments {
  Tensor q, k, v, state;
  std::optional<Tensor> g, beta;
  std::string rule;
  std::optional<double> scale;
  bool normalize = false;
  std::string implementation;

  static constexpr auto list() {
    using A = RecurrentStepArguments;
    return std::tuple{argument("q", &A::q),
                      argument("k", &A::k),
                      argument("v", &A::v),
                      argument("state", &A::state, nullptr, "Tensor(a!)"),
                      argument("g", &A::g, "None"),
                      argument("beta", &A::beta, "None"),
                      argument("rule", &A::rule, "\"delta\""),
                      argument("scale", &A::scale, "None"),
                      argument("normalize", &A::normalize, "False"),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

// Throws c10::ValueError for invalid arguments. Every operator calls it, because private operators can be called from Python,
// too.
void check_call(const char* prefix, const RecurrentCallArguments& a) {
  TensorChecks checks(prefix);
  checks.check("q", a.q, "BHLD");
  checks.check("k", a.k, "BHLD");
  checks.check("v", a.v, "BWLM");
  const auto heads = a.q.size(1), value_heads = a.v.size(1);
  TORCH_CHECK_VALUE(heads >= 1 && value_heads >= 1 && value_heads % heads == 0, prefix, "v has heads ", value_heads,
                    ", expected a multiple of those of q, ", heads);
  const auto state_dtype = accumulator_dtype(a.q.scalar_type());
  if (a.g) {
    TORCH_CHECK_VALUE(!a.g->defined() || a.g->dim() == 3 || a.g->dim() == 4, prefix, "g has shape ", a.g->sym_sizes(),
                      ", expected [batch, heads, length] or, with a decay for each feature, [batch, heads, length, dim]");
    checks.check("g", *a.g, a.g->defined() && a.g->dim() == 4 ? "BWLD" : "BWL", state_dtype);
  }
  if (a.beta) checks.check("beta", *a.beta, "BWL", state_dtype);
  for (const auto& [name, dim] : {std::pair{"q", a.q.size(3)}, {"v", a.v.size(3)}})
    TORCH_CHECK_VALUE(dim >= 1, prefix, name, " has dim 0, expected at least 1");
  TORCH_CHECK_VALUE(a.rule == "delta" || a.rule == "add", prefix, "rule = '", a.rule, "', expected 'delta' or 'add'");
  TORCH_CHECK_VALUE(a.rule == "delta" || !a.beta, prefix, "beta is an argument of the rule 'delta' alone");
  if (a.cu_seqlens) {
    check_cu_seqlens(prefix, *a.cu_seqlens, a.q);
    TORCH_CHECK_VALUE(a.q.sym_size(0) == 1, prefix, "q has batch ", a.q.sym_size(0), ", expected 1 beside cu_seqlens");
  }
  if (a.initial_state) {
    const auto name = std::string(prefix) + "initial_state";
    check_tensor(name.c_str(), *a.initial_state,
                 {a.cu_seqlens ? a.cu_seqlens->sym_size(0) - 1 : a.q.sym_size(0), value_heads, a.q.sym_size(3), a.v.sym_size(3)},
                 state_dtype, a.q);
  }
}

// Checks the values of cu_seqlens, which meta tensors do not have.
void check_values(const RecurrentCallArguments& a) {
  if (a.cu_seqlens) check_values_of_cu_seqlens("recurrent_attention: ", *a.cu_seqlens, a.q.size(2), "q");
}

RecurrentCallArguments call_arguments(const RecurrentStepArguments& a) {
  return {a.q, a.k, a.v, a.g, a.beta, {}, {}, a.rule, a.scale, a.normalize, a.implementation};
}

// k takes the place of q, of which only the sizes are used.
RecurrentCallArguments call_arguments(const RecurrentEndArguments& a) {
  return {a.k, a.k, a.v, a.g, a.beta, a.initial_state, {}, a.rule, 1.0, a.normalize, a.implementation};
}

void check_step(const RecurrentStepArguments& a) {
  constexpr auto kPrefix = "recurrent_attention_step: ";
  check_call(kPrefix, call_arguments(a));
  TORCH_CHECK_VALUE(a.q.sym_size(2) == 1, kPrefix, "q has length ", a.q.sym_size(2), ", expected one token");
  check_tensor("recurrent_attention_step: state", a.state, {a.v.sym_size(0), a.v.sym_size(1), a.q.sym_size(3), a.v.sym_size(3)},
               accumulator_dtype(a.q.scalar_type()), a.q);
  TORCH_CHECK_VALUE(a.state.is_contiguous(), kPrefix, "state must be contiguous, as it changes in place");
}

RecurrentArguments arguments_of(const RecurrentCallArguments& a) {
  const auto scale = a.scale.value_or(1 / std::sqrt(double(a.q.size(3))));
  return {a.q, a.k, a.v, a.g, a.beta, a.initial_state, a.cu_seqlens, a.rule == "delta", scale, a.normalize};
}

// ---------------------------------------------------------------- computation

// Null if the computation is composed of ATen operations.
const RecurrentImplementation* find_implementation(const RecurrentCallArguments& a, bool gradients) {
  return recurrent_implementations().find(
      {a.implementation, a.q.scalar_type(), a.q.device().type(), a.q.size(3), a.v.size(3), gradients, a.q.device().index()});
}

// The sizes of the checkpoints of a call, which must not depend on the implementation that "auto" chooses.
std::vector<c10::SymInt> checkpoint_sizes_of(const RecurrentCallArguments& a, bool gradients) {
  return checkpoint_sizes(arguments_of(a), gradients && a.implementation != kComposedImplementation);
}

// x if it has the strides of empty_in_layout_of(like), otherwise a copy of x that has them.
Tensor in_layout_of(const Tensor& like, const Tensor& x) {
  const auto wanted = empty_in_layout_of(like, x.sym_sizes());
  return wanted.strides() == x.strides() ? x : wanted.copy_(x);
}

std::tuple<Tensor, Tensor, Tensor> forward(const RecurrentForwardArguments& a) {
  check_call("recurrent_attention: ", a);
  check_values(a);
  const auto arguments = arguments_of(a);
  const auto* implementation = find_implementation(a, a.gradients);
  const WithoutAutocast guard;
  auto results = implementation ? implementation->forward(arguments, a.gradients) : composed_recurrent_forward(arguments);
  if (!results.checkpoints.defined())
    results.checkpoints = at::empty_symint(checkpoint_sizes_of(a, a.gradients), results.final_state.options());
  return {in_layout_of(a.v, results.output), std::move(results.final_state), std::move(results.checkpoints)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> backward(const RecurrentBackwardArguments& a) {
  constexpr auto kPrefix = "_recurrent_attention_backward: ";
  check_call(kPrefix, a);
  check_values(a);
  const auto arguments = arguments_of(a);
  const auto* implementation = find_implementation(a, /*gradients=*/true);
  check_tensor("_recurrent_attention_backward: checkpoints", a.checkpoints, checkpoint_sizes_of(a, /*gradients=*/true),
               accumulator_dtype(a.q.scalar_type()), a.q);
  const auto grad_output = a.grad_output.value_or(Tensor()), grad_final_state = a.grad_final_state.value_or(Tensor());
  const WithoutAutocast guard;
  auto all = implementation ? implementation->backward(arguments, a.checkpoints, grad_output, grad_final_state)
                            : composed_recurrent_backward(arguments, grad_output, grad_final_state);
  const auto given = [&](const Tensor& x) { return x.defined() ? x.contiguous() : at::empty({0}, a.q.options()); };
  auto grad_g = arguments.has_feature_gates() ? in_layout_of(*a.g, all.g) : given(all.g);
  return {in_layout_of(a.q, all.q), in_layout_of(a.k, all.k), in_layout_of(a.v, all.v),
          std::move(grad_g),        given(all.beta),          given(all.initial_state)};
}

std::tuple<Tensor> end_state(const RecurrentEndArguments& a) {
  const auto call = call_arguments(a);
  check_call("_recurrent_end_state: ", call);
  const auto* implementation = find_implementation(call, /*gradients=*/false);
  const WithoutAutocast guard;
  const auto arguments = arguments_of(call);
  return implementation ? implementation->end_state(arguments) : composed_recurrent_forward(arguments).final_state;
}

std::tuple<Tensor> step(const RecurrentStepArguments& a) {
  check_step(a);
  // Autograd raises an error if a tensor that it saved for a backward pass has another version.
  if (!a.state.is_inference()) a.state.unsafeGetTensorImpl()->bump_version();
  const auto call = call_arguments(a);
  auto arguments = arguments_of(call);
  if (const auto* implementation = find_implementation(call, /*gradients=*/false))
    return implementation->step(arguments, a.state);
  const WithoutAutocast guard;
  arguments.initial_state = a.state;
  const auto results = composed_recurrent_forward(arguments);
  a.state.copy_(results.final_state);
  return results.output;
}

// ---------------------------------------------------------------- shapes

Tensor output_like(const RecurrentCallArguments& a) { return empty_in_layout_of(a.v, a.v.sym_sizes()); }

std::tuple<Tensor, Tensor, Tensor> forward_meta(const RecurrentForwardArguments& a) {
  check_call("recurrent_attention: ", a);
  const auto arguments = arguments_of(a);
  const auto options = a.q.options().dtype(accumulator_dtype(a.q.scalar_type()));
  return {output_like(a),
          at::empty_symint({sequence_count(arguments), a.v.sym_size(1), a.q.sym_size(3), a.v.sym_size(3)}, options),
          at::empty_symint(checkpoint_sizes_of(a, a.gradients), options)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> backward_meta(const RecurrentBackwardArguments& a) {
  check_call("_recurrent_attention_backward: ", a);
  const auto like = [](const Tensor& x) { return empty_in_layout_of(x, x.sym_sizes()); };
  const auto given = [&](const std::optional<Tensor>& x) {
    return x ? at::empty_symint(x->sym_sizes(), x->options()) : at::empty({0}, a.q.options());
  };
  auto grad_g = arguments_of(a).has_feature_gates() ? like(*a.g) : given(a.g);
  return {like(a.q), like(a.k), like(a.v), std::move(grad_g), given(a.beta), given(a.initial_state)};
}

std::tuple<Tensor> end_state_meta(const RecurrentEndArguments& a) {
  check_call("_recurrent_end_state: ", call_arguments(a));
  return at::empty_symint({a.v.sym_size(0), a.v.sym_size(1), a.k.sym_size(3), a.v.sym_size(3)},
                          a.k.options().dtype(accumulator_dtype(a.k.scalar_type())));
}

std::tuple<Tensor> step_meta(const RecurrentStepArguments& a) {
  check_step(a);
  return output_like(call_arguments(a));
}

// ---------------------------------------------------------------- registration

struct RecurrentOperator {
  using Arguments = RecurrentForwardArguments;
  using BackwardArguments = RecurrentBackwardArguments;
  static constexpr auto name = "attn::_recurrent_attention", backward_name = "attn::_recurrent_attention_backward";
  static constexpr int64_t differentiable_results = 2;

  static BackwardArguments backward_arguments(const Arguments& arguments, const std::vector<Tensor>& results,
                                              const std::vector<Tensor>& gradients) {
    const auto optional = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
    return {arguments, results[2], optional(gradients[0]), optional(gradients[1])};
  }
};

std::tuple<Tensor, Tensor> call(const RecurrentCallArguments& a) {
  // Undefined tensors must be refused here, because autograd, which runs before the other checks, cannot handle them.
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"q", a.q}, {"k", a.k}, {"v", a.v}})
    TORCH_CHECK_VALUE(tensor.defined(), "recurrent_attention: ", name, " is not defined");
  static const auto handle = find_operator(RecurrentOperator::name);
  std::vector<Tensor> tensors{a.q, a.k, a.v};
  for (const auto* optional : {&a.g, &a.beta, &a.initial_state})
    if (*optional) tensors.push_back(**optional);
  const auto results = call_operator(handle, RecurrentForwardArguments{a, records_gradients(tensors)});
  return {results[0], results[1]};
}

TORCH_LIBRARY_FRAGMENT(attn, library) {
  define<RecurrentCallArguments>(library, "recurrent_attention", "(Tensor output, Tensor final_state)");
  define<RecurrentStepArguments>(library, "recurrent_attention_step", "Tensor");
  define<RecurrentEndArguments>(library, "_recurrent_end_state", "Tensor");
  define<RecurrentForwardArguments>(library, "_recurrent_attention", "(Tensor output, Tensor final_state, Tensor checkpoints)");
  define<RecurrentBackwardArguments>(library, "_recurrent_attention_backward",
                                     "(Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_g, Tensor grad_beta, Tensor "
                                     "grad_initial_state)");
}
TORCH_LIBRARY_IMPL(attn, CompositeImplicitAutograd, library) { library.impl("recurrent_attention", kernel<call>()); }
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("recurrent_attention_step", kernel<step>());
  library.impl("_recurrent_attention", kernel<forward>());
  library.impl("_recurrent_end_state", kernel<end_state>());
  library.impl("_recurrent_attention_backward", kernel<backward>());
}
TORCH_LIBRARY_IMPL(attn, Meta, library) {
  library.impl("recurrent_attention_step", kernel<step_meta>());
  library.impl("_recurrent_attention", kernel<forward_meta>());
  library.impl("_recurrent_end_state", kernel<end_state_meta>());
  library.impl("_recurrent_attention_backward", kernel<backward_meta>());
}
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("_recurrent_attention", kernel<Differentiable<RecurrentOperator>::call>());
  // recurrent_attention_step and the end state record no gradients, and recurrent attention is differentiable only once.
  library.impl("recurrent_attention_step", torch::autograd::autogradNotImplementedFallback());
  library.impl("_recurrent_end_state", torch::autograd::autogradNotImplementedFallback());
  library.impl("_recurrent_attention_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace

std::pair<Tensor, Tensor> recurrent_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                              const RecurrentAttentionOptions& o) {
  auto [output, final_state] =
      call({q, k, v, o.g, o.beta, o.initial_state, o.cu_seqlens, o.rule, o.scale, o.normalize, o.implementation});
  return {std::move(output), std::move(final_state)};
}

}  // namespace attn
