// Takes the parameters of each head from the tensors of a call.
#include "attn/lsh/cpu/heads.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "attn/cpu/tensors.h"

namespace attn::cpu {

LshHeads::LshHeads(const LshArguments& a, int64_t rounds) : qk(with_dense_rows(a.qk)), v(with_dense_rows(a.v)) {
  TORCH_CHECK_VALUE(qk.size(2) < std::numeric_limits<int32_t>::max(), "lsh_attention: qk has length ", qk.size(2),
                    ", expected less than 2^31 - 1");
  common.length = qk.size(2);
  common.dim = qk.size(3);
  common.value_dim = v.size(3);
  common.rounds = rounds;
  common.chunk = std::min(a.chunk, common.length);
  common.chunks = (common.length + common.chunk - 1) / common.chunk;
  common.causal = a.causal;
  common.trax = a.trax;
  if (a.key_lengths) lengths = a.key_lengths->clamp(0, common.length).contiguous();
}

LshHeadParams LshHeads::head(int64_t index) const {
  auto params = common;
  params.visible_keys = lengths.defined() ? lengths.const_data_ptr<int64_t>()[index / qk.size(1)] : params.length;
  params.qk = rows_of_head(qk, index);
  params.v = rows_of_head(v, index);
  params.output = rows_of_head(output, index);
  params.grad_output = rows_of_head(grad_output, index);
  params.grad_qk = rows_of_head(grad_qk, index);
  params.grad_v = rows_of_head(grad_v, index);
  const auto per_round = index * params.rounds * params.length;
  params.order = order.const_data_ptr<int64_t>() + per_round;
  params.log_sum_exp = static_cast<double*>(log_sum_exp.data_ptr()) + per_round;
  if (partial_output.defined()) params.partial_output = rows_of_head(partial_output, index).data;
  if (merged.defined()) params.merged = merged.data_ptr<double>() + 2 * index * params.length;
  if (shares.defined()) params.shares = static_cast<const char*>(shares.const_data_ptr()) + shares.element_size() * per_round;
  return params;
}

}  // namespace attn::cpu
