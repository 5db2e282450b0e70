// The tensors of one call of LSH attention, and the parameters of each head in them.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/lsh/cpu/kernels.h"
#include "attn/lsh/implementation.h"

namespace attn::cpu {

// Heads are counted over the batch: index = batch entry · H + head.
struct LshHeads {
  at::Tensor qk, v, lengths;                            // rows are contiguous
  at::Tensor order, log_sum_exp, output, sums, merged;  // as in LshHeadParams, for all heads; those not needed stay undefined
  at::Tensor grad_output, shares, grad_qk, grad_v;
  LshHeadParams common{};  // what is the same for all heads

  // Throws c10::ValueError for sequences of 2^31 - 1 positions or more.
  LshHeads(const LshArguments& arguments, int64_t rounds);

  int64_t count() const { return qk.size(0) * qk.size(1); }
  at::TensorOptions accumulator() const { return qk.options().dtype(accumulator_dtype(qk.scalar_type())); }
  LshHeadParams head(int64_t index) const;
};

}  // namespace attn::cpu
