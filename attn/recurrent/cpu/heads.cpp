// Sets the parameters of each head and the borders of each sequence from the tensors of a call.
#include "attn/recurrent/cpu/heads.h"

#include <ATen/ATen.h>

#include "attn/cpu/tensors.h"

namespace attn::cpu {
namespace {

using at::Tensor;

// The first number of head `index` of a gate [B,W,T] or [B,W,T,K]; null for an undefined gate.
const void* gate_of_head(const Tensor& gate, int64_t index) {
  if (!gate.defined()) return nullptr;
  const auto batch = index / gate.size(1), head = index % gate.size(1);
  return static_cast<const char*>(gate.const_data_ptr()) +
         int64_t(gate.element_size()) * (batch * gate.stride(0) + head * gate.stride(1));
}

}  // namespace

RecurrentHeads::RecurrentHeads(const RecurrentArguments& a)
    : q_(with_dense_rows(a.q)),
      k_(with_dense_rows(a.k)),
      v_(with_dense_rows(a.v)),
      g_(!a.g                    ? Tensor()
         : a.has_feature_gates() ? with_dense_rows(*a.g)
                                 : *a.g),
      beta_(a.beta.value_or(Tensor())) {
  common_.key_dim = a.q.size(3);
  common_.value_dim = a.v.size(3);
  common_.delta = a.delta, common_.feature_gates = a.has_feature_gates(), common_.normalizes = a.normalize,
  common_.scale = a.scale;
  common_.shares_keys = sharing() > 1;
  if (g_.defined()) common_.g_stride = g_.stride(2);
  if (beta_.defined()) common_.beta_stride = beta_.stride(2);
}

void RecurrentHeads::set_gradients(const Tensor& grad_output, const RecurrentGradients& gradients) {
  grad_output_ = with_dense_rows(grad_output);
  gradients_ = gradients;
  if (gradients.g.defined()) common_.grad_g_stride = gradients.g.stride(2);
}

RecurrentHeadParams RecurrentHeads::head(int64_t index) const {
  const auto of_keys = index / sharing();
  auto params = common_;
  if (has_queries_) params.q = rows_of_head(q_, of_keys);
  params.k = rows_of_head(k_, of_keys);
  params.v = rows_of_head(v_, index);
  params.output = rows_of_head(output_, index);
  params.grad_output = rows_of_head(grad_output_, index);
  params.grad_q = rows_of_head(gradients_.q, of_keys);
  params.grad_k = rows_of_head(gradients_.k, of_keys);
  params.grad_v = rows_of_head(gradients_.v, index);
  params.g = gate_of_head(g_, index);
  params.beta = gate_of_head(beta_, index);
  params.grad_g = const_cast<void*>(gate_of_head(gradients_.g, index));
  params.grad_beta = const_cast<void*>(gate_of_head(gradients_.beta, index));
  params.adds_gradients = index % sharing() != 0;
  return params;
}

RecurrentSequences::RecurrentSequences(const RecurrentArguments& a) {
  if (a.cu_seqlens) {
    const auto borders = a.cu_seqlens->contiguous();
    borders_.assign(borders.const_data_ptr<int64_t>(), borders.const_data_ptr<int64_t>() + borders.numel());
  } else {
    borders_ = {0, a.q.size(2)};
  }
}

}  // namespace attn::cpu
