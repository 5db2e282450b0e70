// The tensors of one call of LSH attention on the CPU, and the kernel parameters of each head.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/lsh/cpu/kernels.h"
#include "attn/lsh/implementation.h"

namespace attn::cpu {

// Heads are counted over the batch: index = batch entry · H + head.
struct LshHeads {
  at::Tensor qk, v;    // rows are contiguous
  at::Tensor lengths;  // key_lengths within 0…N, or undefined
  // As in LshHeadParams, for all heads. Tensors that a pass does not need stay undefined.
  at::Tensor order, log_sum_exp, output, partial_output, merged;
  at::Tensor grad_output, shares, grad_qk, grad_v;
  LshHeadParams common{};  // the parameters that are the same for all heads

  // Throws c10::ValueError for sequences of 2^31 - 1 positions or more.
  LshHeads(const LshArguments& arguments, int64_t rounds);

  int64_t count() const { return qk.size(0) * qk.size(1); }
  at::TensorOptions accumulator() const { return qk.options().dtype(accumulator_dtype(qk.scalar_type())); }
  LshHeadParams head(int64_t index) const;
};

}  // namespace attn::cpu
