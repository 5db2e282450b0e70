// LSH attention composed of ATen operations, forward and backward, for any device and dtype.
//
// Shapes: G = B·H sequences of N tokens, R rounds, m = min(chunk, N) places a chunk, C = ⌈N/m⌉ chunks a round, K = 2m keys a
// query: those of its chunk, then those of the chunk before. The large tensors are [G,R·C,m,K] (weights) and [G,R·C,K,D or M]
// (keys, values), never N×N.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <tuple>

#include "attn/lsh/implementation.h"

namespace attn {

// As LshImplementation::forward().
LshForward composed_lsh_forward(const LshArguments& arguments, const at::Tensor& rotations,
                                at::OptionalIntArrayRef bucket_factors);

// grad_qk and grad_v, as LshImplementation::backward() returns them.
std::tuple<at::Tensor, at::Tensor> composed_lsh_backward(const LshArguments& arguments, const at::Tensor& grad_output,
                                                         const LshForward& result);

// The share of each round in a row's output, from log_sum_exp [G,R,N]: NaN where that is NaN, zero where nothing was seen.
at::Tensor lsh_round_shares(const at::Tensor& log_sum_exp, bool trax);

}  // namespace attn
