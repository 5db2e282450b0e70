#include "attn/inputs.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace attn {
namespace {

// `tensor` must have the device, the dtype, the batch size and the number of heads of q.
void check_matches_query(const char* name, const at::Tensor& tensor, const at::Tensor& q) {
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
  // Reading values from a GPU would wait for all work that was queued before, so the values are checked on the CPU only.
  if (lengths.numel() == 0 || !lengths.device().is_cpu()) return;
  const auto [min, max] = at::aminmax(lengths);
  TORCH_CHECK_VALUE(min.item<int64_t>() >= 0, "key_lengths holds ", min.item<int64_t>(), ", expected at least 0");
  TORCH_CHECK_VALUE(max.item<int64_t>() <= k.size(2), "key_lengths holds ", max.item<int64_t>(),
                    ", expected at most the key length ", k.size(2));
}

}  // namespace

Inputs Inputs::tokens(int64_t begin, int64_t length) const {
  Inputs some;
  for (const auto member : kInputTensors)
    if ((this->*member).defined()) some.*member = (this->*member).narrow(2, begin, length);
  some.mask = mask;
  some.part = part;
  return some;
}

at::Tensor Inputs::head_indices() const {
  if (part) return part->heads;
  return at::arange(q.size(1), at::TensorOptions(at::kLong).device(q.device()));
}

int64_t Inputs::heads_of_call() const { return part ? part->heads_of_call : q.size(1); }

Problem problem_of(const Inputs& inputs) {
  const auto &q = inputs.q, &k = inputs.k, &v = inputs.v;
  check_matches_query("q", q, q);
  check_matches_query("k", k, q);
  check_matches_query("v", v, q);
  TORCH_CHECK_VALUE(k.size(3) == q.size(3), "k has dim ", k.size(3), ", expected ", q.size(3), " as in q");
  TORCH_CHECK_VALUE(v.size(2) == k.size(2), "v has length ", v.size(2), ", expected ", k.size(2), " as in k");
  TORCH_CHECK_VALUE(!inputs.mask.causal || k.size(2) == q.size(2), "causal needs as many keys as queries, but k has length ",
                    k.size(2), " and q has length ", q.size(2));
  Problem problem;
  problem.batch = q.size(0);
  problem.heads = q.size(1);
  problem.query_len = q.size(2);
  problem.key_len = k.size(2);
  problem.head_dim = q.size(3);
  problem.value_dim = v.size(3);
  problem.dtype = q.scalar_type();
  problem.device = q.device().type();
  problem.causal = inputs.mask.causal;
  if (inputs.mask.key_lengths) {
    check_key_lengths(*inputs.mask.key_lengths, k);
    problem.key_lengths.kind = KeyLengthDistribution::Kind::uniform;
  }
  problem.validate();
  return problem;
}

}  // namespace attn
