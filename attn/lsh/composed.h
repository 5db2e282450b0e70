// LSH attention composed of ATen operations, forward and backward, for any device and dtype.
//
// Shapes: G = B·H sequences of N tokens, R rounds, m = min(chunk, N) places per chunk, C = ⌈N/m⌉ chunks per round, and K = 2m
// keys per query, first those of its chunk, then those of the chunk before it. The largest tensors are [G,R·C,m,K] (weights) and
// [G,R·C,K,D or M] (keys, values). No tensor is N×N.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <tuple>

#include "attn/lsh/implementation.h"

namespace attn {

// Computes what LshImplementation::forward() computes.
LshForward composed_lsh_forward(const LshArguments& arguments, const at::Tensor& rotations,
                                at::OptionalIntArrayRef bucket_factors);

// Returns grad_qk and grad_v, as LshImplementation::backward() does.
std::tuple<at::Tensor, at::Tensor> composed_lsh_backward(const LshArguments& arguments, const at::Tensor& grad_output,
                                                         const LshForward& result);

// Returns the share of each round in a row's output, [G,R,N], from log_sum_exp [G,R,N], by position. It is NaN where log_sum_exp
// is NaN, and zero where the row sees no key in that round.
at::Tensor lsh_round_shares(const at::Tensor& log_sum_exp, bool trax);

}  // namespace attn
