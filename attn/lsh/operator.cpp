// The PyTorch operators of LSH attention: arguments, checks, computation and shapes. `forward` and `backward` choose the
// implementation that computes.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <tuple>
#include <vector>

#include "attn/check_tensor.h"
#include "attn/lsh/composed.h"
#include "attn/lsh/implementation.h"
#include "attn/lsh/lsh_attention.h"
#include "attn/operators/declaration.h"
#include "attn/without_autocast.h"

namespace attn {
namespace {

using at::Tensor;
using Factors = std::optional<std::vector<int64_t>>;

constexpr auto kPrefix = "lsh_attention: ";

// ---------------------------------------------------------------- arguments

// What lsh_attention takes, and the operator of its forward pass in addition.
struct CallArguments {
  Tensor qk, v, rotations;
  int64_t chunk = 0;
  bool causal = false;
  std::optional<Tensor> key_lengths;
  std::string profile;
  Factors bucket_factors;
  std::string implementation;

  static constexpr auto list() {
    using A = CallArguments;
    return std::tuple{argument("qk", &A::qk),
                      argument("v", &A::v),
                      argument("rotations", &A::rotations),
                      argument("chunk", &A::chunk),
                      argument("causal", &A::causal),
                      argument("key_lengths", &A::key_lengths, "None"),
                      argument("profile", &A::profile, "\"trax\""),
                      argument("bucket_factors", &A::bucket_factors, "None"),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

struct ForwardArguments : CallArguments {
  bool gradients = true;  // as in ImplementationRequest

  static constexpr auto list() {
    return std::tuple_cat(CallArguments::list(), std::tuple{argument("gradients", &ForwardArguments::gradients, "True")});
  }
};

// Some arguments of the forward pass, and the results that it returned.
struct BackwardArguments {
  Tensor grad_output, qk, v, output;
  std::optional<Tensor> key_lengths;
  Tensor log_sum_exp, order;
  int64_t chunk = 0;
  bool causal = false;
  std::string profile, implementation;

  static constexpr auto list() {
    using A = BackwardArguments;
    return std::tuple{argument("grad_output", &A::grad_output),
                      argument("qk", &A::qk),
                      argument("v", &A::v),
                      argument("output", &A::output),
                      argument("key_lengths", &A::key_lengths),
                      argument("log_sum_exp", &A::log_sum_exp),
                      argument("order", &A::order),
                      argument("chunk", &A::chunk),
                      argument("causal", &A::causal),
                      argument("profile", &A::profile),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

void check_factors(const Tensor& rotations, const Factors& factors) {
  if (!factors) return;
  TORCH_CHECK_VALUE(
      factors->size() == 2 && (*factors)[0] >= 2 && (*factors)[1] >= 2 && (*factors)[0] % 2 == 0 && (*factors)[1] % 2 == 0,
      kPrefix, "bucket_factors = ", at::IntArrayRef(*factors), ", expected two even numbers of at least 2");
  TORCH_CHECK_VALUE(rotations.sym_size(2) == ((*factors)[0] + (*factors)[1]) / 2, kPrefix, "rotations have ",
                    rotations.sym_size(2), " columns, expected ", ((*factors)[0] + (*factors)[1]) / 2,
                    ", half the sum of bucket_factors = ", at::IntArrayRef(*factors));
}

// Checks the arguments that both passes have. All checks throw c10::ValueError. Both passes make them, because the private
// operators can be called from Python, too.
template <class Arguments>
TensorChecks check_shared(const Arguments& a) {
  TensorChecks checks(kPrefix);
  checks.check("qk", a.qk, "BHND");
  checks.check("v", a.v, "BHNM");
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"qk", a.qk}, {"v", a.v}})
    TORCH_CHECK_VALUE(tensor.sym_size(2) >= 1 && tensor.sym_size(3) >= 1, kPrefix, name, " has shape ", tensor.sym_sizes(),
                      ", expected length and dim of at least 1");
  TORCH_CHECK_VALUE(a.chunk >= 1, kPrefix, "chunk = ", a.chunk, ", expected at least 1");
  TORCH_CHECK_VALUE(a.profile == kTrax || a.profile == kFastTransformers, kPrefix, "profile = '", a.profile, "', expected '",
                    kTrax, "' or '", kFastTransformers, "'");
  if (a.key_lengths) checks.check_key_lengths(*a.key_lengths);
  return checks;
}

void check_forward(const ForwardArguments& a) {
  auto checks = check_shared(a);
  TORCH_CHECK_VALUE(at::isFloatingType(a.rotations.scalar_type()), kPrefix, "rotations are ", a.rotations.scalar_type(),
                    ", expected a floating dtype");
  checks.check("rotations", a.rotations, "DRC", a.rotations.scalar_type());
  TORCH_CHECK_VALUE(a.rotations.sym_size(1) >= 1 && a.rotations.sym_size(2) >= 1, kPrefix, "rotations have shape ",
                    a.rotations.sym_sizes(), ", expected at least one round and one column");
  check_factors(a.rotations, a.bucket_factors);
}

void check_backward(const BackwardArguments& a) {
  check_shared(a);
  const auto batch = a.qk.sym_size(0), heads = a.qk.sym_size(1), length = a.qk.sym_size(2);
  TORCH_CHECK_VALUE(a.order.dim() == 4 && a.order.sym_size(2) >= 1, "_lsh_attention_backward: order has shape ",
                    a.order.sym_sizes(), ", expected [batch, heads, rounds, length] with at least one round");
  const std::vector<c10::SymInt> per_row{batch, heads, length, a.v.sym_size(3)},
      per_round{batch, heads, a.order.sym_size(2), length};
  check_tensor("_lsh_attention_backward: grad_output", a.grad_output, per_row, a.qk.scalar_type(), a.qk);
  check_tensor("_lsh_attention_backward: output", a.output, per_row, a.qk.scalar_type(), a.qk);
  check_tensor("_lsh_attention_backward: log_sum_exp", a.log_sum_exp, per_round, at::kDouble, a.qk);
  check_tensor("_lsh_attention_backward: order", a.order, per_round, at::kLong, a.qk);
}

// Throws c10::ValueError for positions that do not exist. On a GPU this waits until the order has been computed.
void check_positions(const Tensor& order) {
  if (order.numel() == 0) return;
  const auto [min, max] = order.aminmax();
  TORCH_CHECK_VALUE(min.item<int64_t>() >= 0 && max.item<int64_t>() < order.size(3),
                    "_lsh_attention_backward: order has values from ", min.item<int64_t>(), " to ", max.item<int64_t>(),
                    ", expected positions from 0 to ", order.size(3) - 1);
}

// ---------------------------------------------------------------- computation

// Returns null where the operator is composed of ATen operations. `gradients` is as in ImplementationRequest.
const LshImplementation* find_implementation(const Tensor& qk, const Tensor& v, const std::string& wanted, bool gradients) {
  return lsh_implementations().find(
      {wanted, qk.scalar_type(), qk.device().type(), qk.size(3), v.size(3), gradients, qk.device().index()});
}

std::tuple<Tensor, Tensor, Tensor> forward(const ForwardArguments& a) {
  check_forward(a);
  const LshArguments arguments{a.qk, a.v, a.chunk, a.causal, a.key_lengths, a.profile == kTrax};
  const auto* implementation = find_implementation(a.qk, a.v, a.implementation, a.gradients);
  const at::OptionalIntArrayRef factors(a.bucket_factors);
  const WithoutAutocast guard;
  auto result = implementation ? implementation->forward(arguments, a.rotations, factors)
                               : composed_lsh_forward(arguments, a.rotations, factors);
  return {result.output, result.log_sum_exp, result.order};
}

std::tuple<Tensor, Tensor> backward(const BackwardArguments& a) {
  check_backward(a);
  const LshArguments arguments{a.qk, a.v, a.chunk, a.causal, a.key_lengths, a.profile == kTrax};
  const LshForward result{a.output, a.log_sum_exp, a.order};
  const auto* implementation = find_implementation(a.qk, a.v, a.implementation, /*gradients=*/true);
  const WithoutAutocast guard;
  // The kernels for GPUs skip positions that do not exist, so that they need not wait for a check.
  if (!implementation || a.order.is_cpu()) check_positions(a.order);
  if (implementation)
    return implementation->backward(arguments, a.grad_output, result,
                                    lsh_round_shares(a.log_sum_exp.flatten(0, 1), arguments.trax));
  return composed_lsh_backward(arguments, a.grad_output, result);
}

// ---------------------------------------------------------------- shapes

std::tuple<Tensor, Tensor, Tensor> forward_meta(const ForwardArguments& a) {
  check_forward(a);
  const auto batch = a.qk.sym_size(0), heads = a.qk.sym_size(1), length = a.qk.sym_size(2);
  const std::vector<c10::SymInt> per_round{batch, heads, a.rotations.sym_size(1), length};
  return {at::empty_symint({batch, heads, length, a.v.sym_size(3)}, a.qk.options()),
          at::empty_symint(per_round, a.qk.options().dtype(at::kDouble)),
          at::empty_symint(per_round, a.qk.options().dtype(at::kLong))};
}

std::tuple<Tensor, Tensor> backward_meta(const BackwardArguments& a) {
  check_backward(a);
  return {at::empty_symint(a.qk.sym_sizes(), a.qk.options()), at::empty_symint(a.v.sym_sizes(), a.v.options())};
}

// ---------------------------------------------------------------- registration

struct LshOperator {
  using Arguments = ForwardArguments;
  static constexpr auto name = "attn::_lsh_attention", backward_name = "attn::_lsh_attention_backward";

  static BackwardArguments backward_arguments(const Arguments& a, const std::vector<Tensor>& results,
                                              const std::vector<Tensor>& gradients) {
    return {gradients[0], a.qk,    a.v,      results[0], a.key_lengths,   results[1],
            results[2],   a.chunk, a.causal, a.profile,  a.implementation};
  }
};

std::tuple<Tensor> call(const CallArguments& a) {
  // Undefined tensors are refused here, because autograd runs before the other checks and cannot handle them.
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"qk", a.qk}, {"v", a.v}, {"rotations", a.rotations}})
    TORCH_CHECK_VALUE(tensor.defined(), kPrefix, name, " is not defined");
  static const auto handle = find_operator(LshOperator::name);
  return call_operator(handle, ForwardArguments{a, records_gradients({a.qk, a.v})})[0];
}

// The rotations that draw_rotations() draws, on the CPU, and the factors of `buckets`; no factors if it is not divided.
std::tuple<Tensor, std::vector<int64_t>> rotations_with_factors(int64_t head_dim, int64_t rounds, int64_t buckets, int64_t seed) {
  TORCH_CHECK_VALUE(seed >= 0, "lsh_rotations: seed = ", seed, ", expected at least 0");
  return {draw_rotations(head_dim, rounds, buckets, uint64_t(seed), at::kCPU),
          bucket_factors_of(buckets).value_or(std::vector<int64_t>())};
}

TORCH_LIBRARY_FRAGMENT(attn, library) {
  library.def("lsh_rotations(int head_dim, int rounds, int buckets, int seed) -> (Tensor rotations, int[] bucket_factors)",
              rotations_with_factors);
  define<CallArguments>(library, "lsh_attention", "Tensor");
  define<ForwardArguments>(library, "_lsh_attention", "(Tensor output, Tensor log_sum_exp, Tensor order)");
  define<BackwardArguments>(library, "_lsh_attention_backward", "(Tensor grad_qk, Tensor grad_v)");
}
TORCH_LIBRARY_IMPL(attn, CompositeImplicitAutograd, library) { library.impl("lsh_attention", kernel<call>()); }
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("_lsh_attention", kernel<forward>());
  library.impl("_lsh_attention_backward", kernel<backward>());
}
TORCH_LIBRARY_IMPL(attn, Meta, library) {
  library.impl("_lsh_attention", kernel<forward_meta>());
  library.impl("_lsh_attention_backward", kernel<backward_meta>());
}
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("_lsh_attention", kernel<Differentiable<LshOperator>::call>());
  library.impl("_lsh_attention_backward", torch::autograd::autogradNotImplementedFallback());  // no second derivatives
}

}  // namespace

Tensor lsh_attention(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk, bool causal,
                     const std::optional<Tensor>& key_lengths, std::string_view profile, at::OptionalIntArrayRef bucket_factors,
                     std::string_view implementation) {
  const auto factors = bucket_factors ? Factors(bucket_factors->vec()) : std::nullopt;
  return std::get<0>(
      call({qk, v, rotations, chunk, causal, key_lengths, std::string(profile), factors, std::string(implementation)}));
}

}  // namespace attn
