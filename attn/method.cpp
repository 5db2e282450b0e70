#include "attn/method.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "attn/agreement.h"
#include "attn/cuda/cuda_device.h"

namespace attn {
namespace {

void check_like_query(const char* name, const at::Tensor& tensor, const at::Tensor& q) {
  TORCH_CHECK_VALUE(tensor.defined(), name, " is not defined");
  TORCH_CHECK_VALUE(tensor.dim() == 4, name, " has shape ", tensor.sizes(), ", expected [batch, heads, length, dim]");
  TORCH_CHECK_VALUE(tensor.device() == q.device(), name, " is on ", tensor.device(), " but q is on ", q.device());
  TORCH_CHECK_VALUE(tensor.scalar_type() == q.scalar_type(), name, " is ", dtype_name(tensor.scalar_type()), " but q is ",
                    dtype_name(q.scalar_type()));
  TORCH_CHECK_VALUE(tensor.size(0) == q.size(0) && tensor.size(1) == q.size(1), name, " has shape ", tensor.sizes(),
                    ", expected batch ", q.size(0), " and heads ", q.size(1), " as in q");
}

void check_key_lengths(const at::Tensor& lengths, const at::Tensor& k) {
  TORCH_CHECK_VALUE(lengths.scalar_type() == at::kLong, "key_lengths is ", c10::toString(lengths.scalar_type()),
                    ", expected int64");
  TORCH_CHECK_VALUE(lengths.dim() == 1 && lengths.size(0) == k.size(0), "key_lengths has shape ", lengths.sizes(),
                    ", expected [batch] = [", k.size(0), "]");
  TORCH_CHECK_VALUE(lengths.device() == k.device(), "key_lengths is on ", lengths.device(), " but k is on ", k.device());
  // Reading them would wait for the GPU; the CPU can afford to look.
  if (lengths.numel() == 0 || !lengths.device().is_cpu()) return;
  const auto [least, most] = at::aminmax(lengths);
  TORCH_CHECK_VALUE(least.item<int64_t>() >= 0, "key_lengths holds ", least.item<int64_t>(), ", expected at least 0");
  TORCH_CHECK_VALUE(most.item<int64_t>() <= k.size(2), "key_lengths holds ", most.item<int64_t>(),
                    ", expected at most the key length ", k.size(2));
}

template <class T>
bool contains(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

Problem problem_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) {
  check_like_query("q", q, q);
  check_like_query("k", k, q);
  check_like_query("v", v, q);
  TORCH_CHECK_VALUE(k.size(3) == q.size(3), "k has dim ", k.size(3), ", expected ", q.size(3), " as in q");
  TORCH_CHECK_VALUE(v.size(2) == k.size(2), "v has length ", v.size(2), ", expected ", k.size(2), " as in k");
  TORCH_CHECK_VALUE(!mask.causal || k.size(2) == q.size(2), "causal needs as many keys as queries, but k has length ", k.size(2),
                    " and q has length ", q.size(2));
  Problem problem;
  problem.batch = q.size(0);
  problem.heads = q.size(1);
  problem.query_len = q.size(2);
  problem.key_len = k.size(2);
  problem.head_dim = q.size(3);
  problem.value_dim = v.size(3);
  problem.dtype = q.scalar_type();
  problem.device = q.device().type();
  problem.causal = mask.causal;
  if (mask.key_lengths) {
    check_key_lengths(*mask.key_lengths, k);
    problem.key_lengths.kind = KeyLengthDistribution::Kind::uniform;
  }
  problem.validate();
  return problem;
}

at::Tensor AttentionMethod::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) {
  const auto problem = problem_of(q, k, v, mask);
  const bool differentiates = at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  const auto reason = why_unsupported(problem, differentiates ? Protocol::forward_backward : Protocol::forward);
  TORCH_CHECK_VALUE(!reason, *reason);
  return attend(q, k, v, mask);
}

double AttentionMethod::error_tolerance(at::ScalarType dtype) const { return attn::error_tolerance(dtype); }

std::optional<std::string> AttentionMethod::why_unsupported(const Problem& problem, Protocol protocol) const {
  const auto can = capabilities();
  if (protocol == Protocol::prefill || protocol == Protocol::decode) {
    if (!can.decoding) return label() + " does not decode";
    if (!problem.causal) return label() + ": decoding is causal";
    if (!problem.key_lengths.is_full()) return label() + ": decoding takes no key lengths";
  }
  if (problem.causal && !can.causal) return label() + " has no causal form";
  if (problem.key_len != problem.query_len && !can.cross_attention) return label() + " needs key_len = query_len";
  if (!problem.key_lengths.is_full() && !can.key_lengths) return label() + " has no key-length mask";
  if (protocol == Protocol::forward_backward && !can.gradients) return label() + " has no gradients";
  if (!contains(can.dtypes, problem.dtype)) return label() + " does not take " + dtype_name(problem.dtype);
  if (problem.dtype == at::kHalf && problem.device != kernels::cuda_device()) return label() + " takes float16 on CUDA only";
  if (!contains(can.devices, problem.device))
    return label() + " does not run on " + c10::DeviceTypeName(problem.device, /*lower_case=*/true);
  if (!problem.causal && !can.full) return label() + " has a causal form only";
  return std::nullopt;
}

std::unique_ptr<DecodingState> AttentionMethod::begin_decoding(const Problem& problem) const {
  problem.validate();
  const auto reason = why_unsupported(problem, Protocol::decode);
  TORCH_CHECK_VALUE(!reason, *reason);
  auto state = make_state(problem);
  state->owner_ = this;
  state->problem_ = problem;
  return state;
}

void AttentionMethod::check_tokens(const DecodingState& state, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v) const {
  const auto tokens = problem_of(q, k, v, {/*causal=*/true, std::nullopt});
  const auto& begun = state.problem();
  TORCH_CHECK_VALUE(state.owner_ == this, label(), ": the decoding state is another method's");
  const auto check = [&](const char* what, int64_t found, int64_t expected) {
    TORCH_CHECK_VALUE(found == expected, label(), ": tokens have ", what, " ", found, ", expected ", expected,
                      " as the decoding state was begun with");
  };
  check("batch", tokens.batch, begun.batch);
  check("heads", tokens.heads, begun.heads);
  check("head_dim", tokens.head_dim, begun.head_dim);
  check("value_dim", tokens.value_dim, begun.value_dim);
  TORCH_CHECK_VALUE(tokens.dtype == begun.dtype && tokens.device == begun.device, label(), ": tokens are ",
                    dtype_name(tokens.dtype), " on ", c10::DeviceTypeName(tokens.device, true),
                    ", the decoding state was begun for ", dtype_name(begun.dtype), " on ",
                    c10::DeviceTypeName(begun.device, true));
  TORCH_CHECK_VALUE(state.position() + tokens.query_len <= begun.key_len, label(), ": the decoding state holds ",
                    state.position(), " of ", begun.key_len, " tokens, ", tokens.query_len, " more do not fit");
}

at::Tensor AttentionMethod::step(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check_tokens(state, q, k, v);
  TORCH_CHECK_VALUE(q.size(2) == 1, label(), ": a step takes one token, got ", q.size(2));
  auto output = decode(state, q, k, v);
  ++state.position_;
  return output;
}

void AttentionMethod::extend(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check_tokens(state, q, k, v);
  absorb(state, q, k, v);
  state.position_ += q.size(2);
}

at::Tensor AttentionMethod::prefill(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check_tokens(state, q, k, v);
  TORCH_CHECK_VALUE(state.position() == 0, label(), ": prefill needs a fresh decoding state, this one holds ", state.position(),
                    " tokens");
  auto output = fill(state, q, k, v);
  state.position_ += q.size(2);
  return output;
}

std::unique_ptr<DecodingState> AttentionMethod::make_state(const Problem&) const {
  TORCH_CHECK(false, label(), " claims to decode and has no make_state()");
}
void AttentionMethod::absorb(DecodingState&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  TORCH_CHECK(false, label(), " claims to decode and has no absorb()");
}
at::Tensor AttentionMethod::decode(DecodingState&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  TORCH_CHECK(false, label(), " claims to decode and has no decode()");
}
at::Tensor AttentionMethod::fill(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  auto output = attend(q, k, v, {/*causal=*/true, std::nullopt});
  absorb(state, q, k, v);
  return output;
}

int64_t DecodingState::bytes() const {
  int64_t total = 0;
  for (const auto& tensor : tensors()) total += int64_t(tensor.nbytes());
  return total;
}

}  // namespace attn
