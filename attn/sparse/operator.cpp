// The PyTorch operator of sparse attention, attn::sparse_attention, which is differentiable once. attn/sparse/implementation.h
// says what it computes.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <cmath>
#include <tuple>

#include "attn/check_tensor.h"
#include "attn/operators/composition.h"
#include "attn/operators/declaration.h"
#include "attn/sparse/composed.h"
#include "attn/sparse/implementation.h"
#include "attn/sparse/sparse_attention.h"
#include "attn/without_autocast.h"

namespace attn {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- arguments

struct SparseCall {
  Tensor q, k, v;
  bool causal = false;
  std::string pattern;
  std::optional<Tensor> key_lengths, cu_seqlens, sinks, chosen_blocks;
  int64_t block = 64;
  std::optional<double> scale;
  std::string implementation;

  static constexpr auto list() {
    using A = SparseCall;
    return std::tuple{argument("q", &A::q),
                      argument("k", &A::k),
                      argument("v", &A::v),
                      argument("sinks", &A::sinks, "None"),
                      argument("causal", &A::causal, "False"),
                      argument("pattern", &A::pattern, "\"all\""),
                      argument("key_lengths", &A::key_lengths, "None"),
                      argument("cu_seqlens", &A::cu_seqlens, "None"),
                      argument("scale", &A::scale, "None"),
                      argument("implementation", &A::implementation, "\"auto\""),
                      argument("chosen_blocks", &A::chosen_blocks, "None"),
                      argument("block", &A::block, "64")};
  }
};

struct SparseBackwardCall : SparseCall {
  Tensor output, log_sum_exp;
  std::optional<Tensor> grad_output, grad_log_sum_exp;

  static constexpr auto list() {
    using A = SparseBackwardCall;
    return std::tuple_cat(
        std::tuple{argument("output", &A::output), argument("log_sum_exp", &A::log_sum_exp),
                   argument("grad_output", &A::grad_output), argument("grad_log_sum_exp", &A::grad_log_sum_exp)},
        SparseCall::list());
  }
};

c10::SymInt output_heads(const SparseCall& a) { return a.q.sym_size(1).max(a.k.sym_size(1)).max(a.v.sym_size(1)); }

// Throws c10::ValueError for invalid arguments. Both operators call it, because the private one can be called from Python, too.
void check_sparse(const char* prefix, const SparseCall& a) {
  TensorChecks checks(prefix);
  checks.check("q", a.q, "BHND");
  checks.check("k", a.k, "BGLD");
  checks.check("v", a.v, "BWLM");
  const auto heads = output_heads(a);
  for (const auto& [name, x] : {std::pair{"q", &a.q}, {"k", &a.k}, {"v", &a.v}})
    TORCH_CHECK_VALUE(x->sym_size(1) > 0 && heads % x->sym_size(1) == 0, prefix, name, " has heads ", x->sym_size(1),
                      ", expected a divisor of ", heads, ", the largest number of heads of q, k and v");
  if (a.key_lengths) checks.check_key_lengths(*a.key_lengths);
  if (a.sinks)
    check_tensor((std::string(prefix) + "sinks").c_str(), *a.sinks, {heads}, accumulator_dtype(a.q.scalar_type()), a.q);
  if (a.cu_seqlens) {
    check_cu_seqlens(prefix, *a.cu_seqlens, a.q);
    TORCH_CHECK_VALUE(!a.key_lengths, prefix, "cu_seqlens does not go with key_lengths");
    TORCH_CHECK_VALUE(a.q.sym_size(2) == a.k.sym_size(2), prefix, "q has length ", a.q.sym_size(2), " and k ", a.k.sym_size(2),
                      ", expected one length beside cu_seqlens");
  }
  const auto pattern = Pattern::parse(a.pattern);
  if (!a.chosen_blocks) return;
  const auto& blocks = *a.chosen_blocks;
  TORCH_CHECK_VALUE(pattern.is_all() && !a.cu_seqlens, prefix, "chosen_blocks does not go with a pattern or with cu_seqlens");
  TORCH_CHECK_VALUE(a.block >= 1, prefix, "block = ", a.block, ", expected at least 1");
  TORCH_CHECK_VALUE(blocks.scalar_type() == at::kLong && blocks.dim() == 4 && blocks.device() == a.q.device() &&
                        blocks.sym_size(0) == a.q.sym_size(0) && blocks.sym_size(1) > 0 && heads % blocks.sym_size(1) == 0 &&
                        blocks.sym_size(2) == a.q.sym_size(2),
                    prefix, "chosen_blocks is ", blocks.scalar_type(), " ", blocks.sym_sizes(), " on ", blocks.device(),
                    ", expected int64 [", a.q.sym_size(0), ",C,", a.q.sym_size(2), ",K] on ", a.q.device(),
                    " with a divisor C of ", heads);
}

// Checks the values of key_lengths and cu_seqlens on the CPU only: reading them from a GPU would wait for all work that was
// queued before.
void check_sparse_values(const SparseCall& a) {
  if (a.key_lengths && a.key_lengths->device().is_cpu() && a.key_lengths->numel() > 0) {
    const auto [min, max] = a.key_lengths->aminmax();
    TORCH_CHECK_VALUE(min.item<int64_t>() >= 0 && max.item<int64_t>() <= a.k.size(2), "sparse_attention: key_lengths holds ",
                      min.item<int64_t>(), " to ", max.item<int64_t>(), ", expected 0 to ", a.k.size(2), ", the length of k");
  }
  if (a.cu_seqlens) check_values_of_cu_seqlens("sparse_attention: ", *a.cu_seqlens, a.q.size(2), "q");
}

SparseArguments sparse_arguments(const SparseCall& a) {
  return {a.q,
          a.k,
          a.v,
          a.causal,
          Pattern::parse(a.pattern),
          a.scale.value_or(1 / std::sqrt(double(a.q.size(3)))),
          a.key_lengths,
          a.cu_seqlens,
          a.sinks,
          a.chosen_blocks,
          a.block};
}

// ---------------------------------------------------------------- computation

// Null if the computation is composed of ATen operations.
const SparseImplementation* find_sparse(const SparseCall& a) {
  return sparse_implementations().find({a.implementation, a.q.scalar_type(), a.q.device().type(), a.q.size(3), a.v.size(3),
                                        /*gradients=*/true, a.q.device().index()});
}

std::tuple<Tensor, Tensor> attend_sparsely(const SparseCall& a) {
  check_sparse("sparse_attention: ", a);
  check_sparse_values(a);
  const WithoutAutocast guard;
  const auto* const implementation = find_sparse(a);
  const auto results =
      implementation ? implementation->forward(sparse_arguments(a)) : composed_sparse_forward(sparse_arguments(a));
  return {results.output, results.log_sum_exp};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attend_sparsely_backward(const SparseBackwardCall& a) {
  const char* const prefix = "_sparse_attention_backward: ";
  check_sparse(prefix, a);
  check_sparse_values(a);
  const auto batch = a.q.size(0), heads = output_heads(a).guard_int(__FILE__, __LINE__), length = a.q.size(2);
  const auto accumulator = accumulator_dtype(a.q.scalar_type());
  check_tensor("_sparse_attention_backward: output", a.output, {batch, heads, length, a.v.size(3)}, a.q.scalar_type(), a.q);
  check_tensor("_sparse_attention_backward: log_sum_exp", a.log_sum_exp, {batch, heads, length}, accumulator, a.q);
  if (a.grad_output)
    check_tensor("_sparse_attention_backward: grad_output", *a.grad_output, {batch, heads, length, a.v.size(3)},
                 a.q.scalar_type(), a.q);
  if (a.grad_log_sum_exp)
    check_tensor("_sparse_attention_backward: grad_log_sum_exp", *a.grad_log_sum_exp, {batch, heads, length}, accumulator, a.q);
  const WithoutAutocast guard;
  auto arguments = sparse_arguments(a);
  const auto grad_output = a.grad_output.value_or(Tensor()), grad_log_sum_exp = a.grad_log_sum_exp.value_or(Tensor());
  const auto given = [&](const Tensor& x) { return x.defined() ? x : at::empty({0}, a.q.options()); };
  if (const auto* const implementation = find_sparse(a)) {
    const auto all = implementation->backward(arguments, {a.output, a.log_sum_exp}, grad_output, grad_log_sum_exp);
    return {all.q, all.k, all.v, given(all.sinks)};
  }
  auto sinks = arguments.sinks.value_or(Tensor());
  std::vector<Tensor*> inputs{&arguments.q, &arguments.k, &arguments.v};
  if (arguments.sinks) inputs.push_back(&sinks);
  const auto gradients = gradients_of_composition(inputs,
                                                  [&] {
                                                    if (arguments.sinks) arguments.sinks = sinks;
                                                    const auto results = composed_sparse_forward(arguments);
                                                    return std::vector{results.output, results.log_sum_exp};
                                                  },
                                                  {grad_output, grad_log_sum_exp});
  return {gradients[0].contiguous(), gradients[1].contiguous(), gradients[2].contiguous(),
          given(arguments.sinks ? gradients[3].contiguous() : Tensor())};
}

// ---------------------------------------------------------------- shapes

std::tuple<Tensor, Tensor> attend_sparsely_meta(const SparseCall& a) {
  check_sparse("sparse_attention: ", a);
  const auto heads = output_heads(a);
  return {at::empty_symint({a.q.sym_size(0), heads, a.q.sym_size(2), a.v.sym_size(3)}, a.q.options()),
          at::empty_symint({a.q.sym_size(0), heads, a.q.sym_size(2)}, a.q.options().dtype(accumulator_dtype(a.q.scalar_type())))};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attend_sparsely_backward_meta(const SparseBackwardCall& a) {
  check_sparse("_sparse_attention_backward: ", a);
  const auto like = [](const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  return {like(a.q), like(a.k), like(a.v), a.sinks ? like(*a.sinks) : at::empty({0}, a.q.options())};
}

// ---------------------------------------------------------------- registration

struct SparseOperator {
  using Arguments = SparseCall;
  using BackwardArguments = SparseBackwardCall;
  static constexpr auto name = "attn::sparse_attention", backward_name = "attn::_sparse_attention_backward";
  static constexpr int64_t differentiable_results = 2;

  static BackwardArguments backward_arguments(const Arguments& arguments, const std::vector<Tensor>& results,
                                              const std::vector<Tensor>& gradients) {
    const auto optional = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
    return {arguments, results[0], results[1], optional(gradients[0]), optional(gradients[1])};
  }
};

TORCH_LIBRARY_FRAGMENT(attn, library) {
  define<SparseCall>(library, "sparse_attention", "(Tensor output, Tensor log_sum_exp)");
  define<SparseBackwardCall>(library, "_sparse_attention_backward",
                             "(Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_sinks)");
}
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("sparse_attention", kernel<attend_sparsely>());
  library.impl("_sparse_attention_backward", kernel<attend_sparsely_backward>());
}
TORCH_LIBRARY_IMPL(attn, Meta, library) {
  library.impl("sparse_attention", kernel<attend_sparsely_meta>());
  library.impl("_sparse_attention_backward", kernel<attend_sparsely_backward_meta>());
}
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("sparse_attention", kernel<Differentiable<SparseOperator>::call>());
  library.impl("_sparse_attention_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace

std::tuple<Tensor, Tensor> sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v, const SparseAttentionOptions& o) {
  static const auto handle = find_operator("attn::sparse_attention");
  SparseCall call{
      q, k, v, o.causal, o.pattern, o.key_lengths, o.cu_seqlens, o.sinks, o.chosen_blocks, o.block, o.scale, o.implementation};
  auto results = call_operator(handle, call);
  return {results[0], results[1]};
}

}  // namespace attn
