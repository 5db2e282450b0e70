// The PyTorch operator of LSH attention: schemas, checks of arguments, autograd and shapes. `forward` and `backward` choose the
// implementation that computes.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "attn/check_tensor.h"
#include "attn/lsh/composed.h"
#include "attn/lsh/implementation.h"
#include "attn/lsh/lsh_attention.h"
#include "attn/without_autocast.h"

namespace attn {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- arguments

void check_dims(const char* name, const Tensor& tensor, const char* shape, int64_t dims) {
  TORCH_CHECK_VALUE(tensor.dim() == dims, "lsh_attention: ", name, " has shape ", tensor.sym_sizes(), ", expected ", shape);
}

void check_same_device(const char* name, const Tensor& tensor, const Tensor& qk) {
  TORCH_CHECK_VALUE(tensor.device() == qk.device(), "lsh_attention: ", name, " is on ", tensor.device(), " but qk is on ",
                    qk.device());
}

void check_rotations(const Tensor& rotations, const Tensor& qk, at::OptionalIntArrayRef factors) {
  check_dims("rotations", rotations, "[dim, rounds, columns]", 3);
  check_same_device("rotations", rotations, qk);
  TORCH_CHECK_VALUE(at::isFloatingType(rotations.scalar_type()), "lsh_attention: rotations are ", rotations.scalar_type(),
                    ", expected a floating type");
  TORCH_CHECK_VALUE(rotations.sym_size(0) == qk.sym_size(3), "lsh_attention: rotations have shape ", rotations.sym_sizes(),
                    ", expected dim ", qk.sym_size(3), " as in qk");
  TORCH_CHECK_VALUE(rotations.sym_size(1) >= 1 && rotations.sym_size(2) >= 1, "lsh_attention: rotations have shape ",
                    rotations.sym_sizes(), ", expected at least one round and one column");
  if (!factors) return;
  TORCH_CHECK_VALUE(
      factors->size() == 2 && (*factors)[0] >= 2 && (*factors)[1] >= 2 && (*factors)[0] % 2 == 0 && (*factors)[1] % 2 == 0,
      "lsh_attention: bucket_factors = ", *factors, ", expected two even numbers of at least 2");
  TORCH_CHECK_VALUE(rotations.sym_size(2) == ((*factors)[0] + (*factors)[1]) / 2, "lsh_attention: rotations have ",
                    rotations.sym_size(2), " columns, expected ", ((*factors)[0] + (*factors)[1]) / 2,
                    ", half the sum of bucket_factors = ", *factors);
}

// Checks the arguments that both passes have.
void check_shared_arguments(const Tensor& qk, const Tensor& v, int64_t chunk, const std::optional<Tensor>& key_lengths,
                            std::string_view profile) {
  check_dims("qk", qk, "[batch, heads, length, dim]", 4);
  check_dims("v", v, "[batch, heads, length, dim]", 4);
  check_same_device("v", v, qk);
  TORCH_CHECK_VALUE(at::isFloatingType(qk.scalar_type()), "lsh_attention: qk is ", qk.scalar_type(),
                    ", expected a floating type");
  TORCH_CHECK_VALUE(v.scalar_type() == qk.scalar_type(), "lsh_attention: v is ", v.scalar_type(), " but qk is ",
                    qk.scalar_type());
  for (int64_t dim = 0; dim < 3; ++dim)
    TORCH_CHECK_VALUE(v.sym_size(dim) == qk.sym_size(dim), "lsh_attention: v has shape ", v.sym_sizes(),
                      ", expected batch, heads and length of qk, ", qk.sym_sizes());
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"qk", qk}, {"v", v}})
    TORCH_CHECK_VALUE(tensor.sym_size(2) >= 1 && tensor.sym_size(3) >= 1, "lsh_attention: ", name, " has shape ",
                      tensor.sym_sizes(), ", expected length and dim of at least 1");
  TORCH_CHECK_VALUE(chunk >= 1, "lsh_attention: chunk = ", chunk, ", expected at least 1");
  TORCH_CHECK_VALUE(profile == kTrax || profile == kFastTransformers, "lsh_attention: profile = '", profile, "', expected '",
                    kTrax, "' or '", kFastTransformers, "'");
  if (!key_lengths) return;
  check_dims("key_lengths", *key_lengths, "[batch]", 1);
  check_same_device("key_lengths", *key_lengths, qk);
  TORCH_CHECK_VALUE(key_lengths->scalar_type() == at::kLong, "lsh_attention: key_lengths is ", key_lengths->scalar_type(),
                    ", expected int64");
  TORCH_CHECK_VALUE(key_lengths->sym_size(0) == qk.sym_size(0), "lsh_attention: key_lengths has shape ", key_lengths->sym_sizes(),
                    ", expected [batch] = [", qk.sym_size(0), "]");
}

// The private operators can be called from Python as well as the public one, so forward() and backward() check all that they
// receive. These functions throw c10::ValueError.
void check_forward_arguments(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk,
                             const std::optional<Tensor>& key_lengths, std::string_view profile,
                             at::OptionalIntArrayRef bucket_factors) {
  check_shared_arguments(qk, v, chunk, key_lengths, profile);
  check_rotations(rotations, qk, bucket_factors);
}

void check_backward_arguments(const Tensor& grad_output, const Tensor& qk, const Tensor& v, const Tensor& output,
                              const std::optional<Tensor>& key_lengths, const Tensor& log_sum_exp, const Tensor& order,
                              int64_t chunk, std::string_view profile) {
  check_shared_arguments(qk, v, chunk, key_lengths, profile);
  const auto batch = qk.sym_size(0), heads = qk.sym_size(1), length = qk.sym_size(2);
  check_dims("order", order, "[batch, heads, rounds, length]", 4);
  const std::vector<c10::SymInt> per_row{batch, heads, length, v.sym_size(3)}, per_round{batch, heads, order.sym_size(2), length};
  TORCH_CHECK_VALUE(order.sym_size(2) >= 1, "_lsh_attention_backward: order has shape ", order.sym_sizes(),
                    ", expected at least one round");
  check_tensor("_lsh_attention_backward: grad_output", grad_output, per_row, qk.scalar_type(), qk);
  check_tensor("_lsh_attention_backward: output", output, per_row, qk.scalar_type(), qk);
  check_tensor("_lsh_attention_backward: log_sum_exp", log_sum_exp, per_round, at::kDouble, qk);
  check_tensor("_lsh_attention_backward: order", order, per_round, at::kLong, qk);
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
const LshImplementation* find_implementation(const Tensor& qk, const Tensor& v, std::string_view wanted, bool gradients) {
  return lsh_implementations().find(
      {std::string(wanted), qk.scalar_type(), qk.device().type(), qk.size(3), v.size(3), gradients, qk.device().index()});
}

std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk, bool causal,
                                           const std::optional<Tensor>& key_lengths, std::string_view profile,
                                           at::OptionalIntArrayRef bucket_factors, std::string_view wanted, bool gradients) {
  check_forward_arguments(qk, v, rotations, chunk, key_lengths, profile, bucket_factors);
  const LshArguments arguments{qk, v, chunk, causal, key_lengths, profile == kTrax};
  const auto* implementation = find_implementation(qk, v, wanted, gradients);
  const WithoutAutocast guard;
  auto result = implementation ? implementation->forward(arguments, rotations, bucket_factors)
                               : composed_lsh_forward(arguments, rotations, bucket_factors);
  return {result.output, result.log_sum_exp, result.order};
}

// The arguments beside grad_output are those that the forward pass received and the results that it returned.
std::tuple<Tensor, Tensor> backward(const Tensor& grad_output, const Tensor& qk, const Tensor& v, const Tensor& output,
                                    const std::optional<Tensor>& key_lengths, const Tensor& log_sum_exp, const Tensor& order,
                                    int64_t chunk, bool causal, std::string_view profile, std::string_view wanted) {
  check_backward_arguments(grad_output, qk, v, output, key_lengths, log_sum_exp, order, chunk, profile);
  const LshArguments arguments{qk, v, chunk, causal, key_lengths, profile == kTrax};
  const LshForward result{output, log_sum_exp, order};
  const auto* implementation = find_implementation(qk, v, wanted, /*gradients=*/true);
  const WithoutAutocast guard;
  // The kernels for GPUs skip positions that do not exist, so that they need not wait for a check.
  if (!implementation || order.is_cpu()) check_positions(order);
  if (implementation)
    return implementation->backward(arguments, grad_output, result, lsh_round_shares(log_sum_exp.flatten(0, 1), arguments.trax));
  return composed_lsh_backward(arguments, grad_output, result);
}

// ---------------------------------------------------------------- shapes

std::tuple<Tensor, Tensor, Tensor> forward_meta(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk, bool,
                                                const std::optional<Tensor>& key_lengths, std::string_view profile,
                                                at::OptionalIntArrayRef bucket_factors, std::string_view, bool) {
  check_forward_arguments(qk, v, rotations, chunk, key_lengths, profile, bucket_factors);
  const auto batch = qk.sym_size(0), heads = qk.sym_size(1), length = qk.sym_size(2), rounds = rotations.sym_size(1);
  const std::vector<c10::SymInt> per_round{batch, heads, rounds, length};
  return {at::empty_symint({batch, heads, length, v.sym_size(3)}, qk.options()),
          at::empty_symint(per_round, qk.options().dtype(at::kDouble)),
          at::empty_symint(per_round, qk.options().dtype(at::kLong))};
}

std::tuple<Tensor, Tensor> backward_meta(const Tensor& grad_output, const Tensor& qk, const Tensor& v, const Tensor& output,
                                         const std::optional<Tensor>& key_lengths, const Tensor& log_sum_exp, const Tensor& order,
                                         int64_t chunk, bool, std::string_view profile, std::string_view) {
  check_backward_arguments(grad_output, qk, v, output, key_lengths, log_sum_exp, order, chunk, profile);
  return {at::empty_symint(qk.sym_sizes(), qk.options()), at::empty_symint(v.sym_sizes(), v.options())};
}

// ---------------------------------------------------------------- autograd

template <class Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

auto call_forward(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk, bool causal,
                  const std::optional<Tensor>& key_lengths, std::string_view profile, at::OptionalIntArrayRef bucket_factors,
                  std::string_view wanted, bool gradients) {
  static const auto op = find_operator<decltype(forward)>("attn::_lsh_attention");
  return op.call(qk, v, rotations, chunk, causal, key_lengths, profile, bucket_factors, wanted, gradients);
}

class LshAttention : public torch::autograd::Function<LshAttention> {
 public:
  using Context = torch::autograd::AutogradContext;

  static torch::autograd::variable_list forward(Context* context, const Tensor& qk, const Tensor& v, const Tensor& rotations,
                                                int64_t chunk, bool causal, const std::optional<Tensor>& key_lengths,
                                                std::string_view profile, at::OptionalIntArrayRef bucket_factors,
                                                std::string_view wanted, bool gradients) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [output, log_sum_exp, order] =
        call_forward(qk, v, rotations, chunk, causal, key_lengths, profile, bucket_factors, wanted, gradients);
    context->save_for_backward({qk, v, output, key_lengths.value_or(Tensor()), log_sum_exp, order});
    context->saved_data["chunk"] = chunk;
    context->saved_data["causal"] = causal;
    context->saved_data["profile"] = std::string(profile);
    context->saved_data["implementation"] = std::string(wanted);
    context->mark_non_differentiable({log_sum_exp, order});
    return {output, log_sum_exp, order};
  }

  static torch::autograd::variable_list backward(Context* context, const torch::autograd::variable_list& gradients) {
    static const auto op = find_operator<decltype(attn::backward)>("attn::_lsh_attention_backward");
    const auto saved = context->get_saved_variables();
    const auto key_lengths = saved[3].defined() ? std::optional(saved[3]) : std::nullopt;
    const auto [grad_qk, grad_v] =
        op.call(gradients[0], saved[0], saved[1], saved[2], key_lengths, saved[4], saved[5], context->saved_data["chunk"].toInt(),
                context->saved_data["causal"].toBool(), context->saved_data["profile"].toStringRef(),
                context->saved_data["implementation"].toStringRef());
    return {grad_qk, grad_v, {}, {}, {}, {}, {}, {}, {}, {}};
  }
};

std::tuple<Tensor, Tensor, Tensor> forward_autograd(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk,
                                                    bool causal, const std::optional<Tensor>& key_lengths,
                                                    std::string_view profile, at::OptionalIntArrayRef bucket_factors,
                                                    std::string_view wanted, bool gradients) {
  auto results = LshAttention::apply(qk, v, rotations, chunk, causal, key_lengths, profile, bucket_factors, wanted, gradients);
  return {results[0], results[1], results[2]};
}

// ---------------------------------------------------------------- registration

// The rotations that draw_rotations() draws, on the CPU, and the factors of `buckets`; no factors if it is not divided.
std::tuple<Tensor, std::vector<int64_t>> rotations_with_factors(int64_t head_dim, int64_t rounds, int64_t buckets, int64_t seed) {
  TORCH_CHECK_VALUE(seed >= 0, "lsh_rotations: seed = ", seed, ", expected at least 0");
  return {draw_rotations(head_dim, rounds, buckets, uint64_t(seed), at::kCPU),
          bucket_factors_of(buckets).value_or(std::vector<int64_t>())};
}

TORCH_LIBRARY_FRAGMENT(attn, library) {
  library.def("lsh_rotations(int head_dim, int rounds, int buckets, int seed) -> (Tensor rotations, int[] bucket_factors)",
              rotations_with_factors);
  library.def(
      "lsh_attention(Tensor qk, Tensor v, Tensor rotations, int chunk, bool causal, Tensor? key_lengths=None, "
      "str profile=\"trax\", int[]? bucket_factors=None, str implementation=\"auto\") -> Tensor",
      lsh_attention);
  library.def(
      "_lsh_attention(Tensor qk, Tensor v, Tensor rotations, int chunk, bool causal, Tensor? key_lengths, str profile, "
      "int[]? bucket_factors, str implementation=\"auto\", bool gradients=True) -> (Tensor output, Tensor log_sum_exp, "
      "Tensor order)");
  library.def(
      "_lsh_attention_backward(Tensor grad_output, Tensor qk, Tensor v, Tensor output, Tensor? key_lengths, Tensor log_sum_exp, "
      "Tensor order, int chunk, bool causal, str profile, str implementation=\"auto\") -> (Tensor grad_qk, Tensor grad_v)");
}
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("_lsh_attention", forward);
  library.impl("_lsh_attention_backward", backward);
}
TORCH_LIBRARY_IMPL(attn, Meta, library) {
  library.impl("_lsh_attention", forward_meta);
  library.impl("_lsh_attention_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("_lsh_attention", forward_autograd);
  library.impl("_lsh_attention_backward", torch::autograd::autogradNotImplementedFallback());  // no second derivatives
}

}  // namespace

Tensor lsh_attention(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk, bool causal,
                     const std::optional<Tensor>& key_lengths, std::string_view profile, at::OptionalIntArrayRef bucket_factors,
                     std::string_view implementation) {
  // Undefined tensors are refused here, because autograd runs before the other checks and cannot handle them.
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"qk", qk}, {"v", v}, {"rotations", rotations}})
    TORCH_CHECK_VALUE(tensor.defined(), "lsh_attention: ", name, " is not defined");
  return std::get<0>(call_forward(qk, v, rotations, chunk, causal, key_lengths, profile, bucket_factors, implementation,
                                  records_gradients({qk, v})));
}

}  // namespace attn
