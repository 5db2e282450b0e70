// What a method's forward reads: the tensors, and the mask that says which keys each query may see.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/mask.h"
#include "attn/problem.h"

namespace attn {

// All tensors have one dtype and one device, and any strides. A method that reads more than these (gates, a step size, an initial
// state) adds a member at the end, undefined by default, and to kInputTensors; the other methods need no change, as they name the
// members that they read.
struct Inputs {
  at::Tensor q;  // [B,H,N,D]
  at::Tensor k;  // [B,H,L,D]
  at::Tensor v;  // [B,H,L,M]
  Mask mask = {};

  // The `length` positions from `begin` of every tensor, as views, with the same mask: tokens to decode, or a prefix. Needs
  // key_len = query_len.
  Inputs tokens(int64_t begin, int64_t length) const;
};

// The tensors of Inputs, for code that treats each of them alike.
inline constexpr at::Tensor Inputs::*kInputTensors[] = {&Inputs::q, &Inputs::k, &Inputs::v};

// The problem that these inputs pose; key lengths count as uniformly distributed. Throws c10::ValueError that names the tensor,
// its value and what was expected when shapes, dtypes or devices disagree.
Problem problem_of(const Inputs& inputs);

}  // namespace attn
