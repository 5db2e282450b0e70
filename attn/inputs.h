// Inputs: what a method's forward() reads, that is the tensors, and the mask that says which keys each query may see.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "attn/mask.h"
#include "attn/problem.h"

namespace attn {

// Some of the batch entries and heads of a call. A method whose heads differ, such as one with a slope for each head, needs their
// indices in its reference.
struct Part {
  at::Tensor batch, heads;  // int64 [B], [H]: the indices in the call
  int64_t batch_of_call = 0, heads_of_call = 0;
};

// All tensors have the same dtype and device; their strides are arbitrary. A method that reads further tensors (gates, a step
// size, an initial state) adds a member at the end, undefined by default, and adds it to kInputTensors. Other methods need no
// change, because they read members by name.
struct Inputs {
  at::Tensor q;  // [B,H,N,D]
  at::Tensor k;  // [B,H,L,D]
  at::Tensor v;  // [B,H,L,M]
  Mask mask = {};
  // Set only where a reference is given some of the batch entries and heads of a call.
  std::optional<Part> part = std::nullopt;

  // Views of `length` positions, beginning with position `begin`, of every tensor, with the same mask: tokens to decode, or a
  // prefix. Needs key_len = query_len.
  Inputs tokens(int64_t begin, int64_t length) const;

  // int64 [H] on the device of q: the index in the call of each head that q has, and how many heads the call has.
  at::Tensor head_indices() const;
  int64_t heads_of_call() const;
};

// The tensors of Inputs, for code that treats all of them alike.
inline constexpr at::Tensor Inputs::*kInputTensors[] = {&Inputs::q, &Inputs::k, &Inputs::v};

// The problem that describes these inputs; key lengths are described as uniformly distributed. Throws c10::ValueError if shapes,
// dtypes or devices disagree; the message names the tensor, its value and what was expected.
Problem problem_of(const Inputs& inputs);

}  // namespace attn
