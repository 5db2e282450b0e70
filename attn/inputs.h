// Inputs: what a method's forward() reads, that is the tensors, and the mask that says which keys each query may see.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "attn/mask.h"

namespace attn {

// Some of the batch entries and heads of a call. A method whose heads differ, such as one with a slope for each head, needs their
// indices in its reference.
struct Part {
  at::Tensor batch, heads;  // int64 [B], [H]: the indices in the call
  int64_t heads_of_call = 0;
};

// The tensors are declared in a table, kInputs in attn/input_spec.h, which says their shapes, dtypes and how they are drawn. A
// method says in its capabilities which of them it reads; for every other method they are undefined. Their strides are arbitrary.
// A further tensor is a member here and a row of the table. Nothing else needs to know its name but the methods that read it.
struct Inputs {
  at::Tensor q;  // [B,H,N,D]
  at::Tensor k;  // [B,G,L,D]
  at::Tensor v;  // [B,W,L,M]
  Mask mask = {};
  // Set only where a reference is given some of the batch entries and heads of a call.
  std::optional<Part> part = std::nullopt;
  at::Tensor g = {};  // [B,W,L], at most 0: the natural logarithm of the factor by which position l lets what is before it decay
  at::Tensor beta = {};   // [B,W,L]: the step size with which position l changes the state, see attn/recurrent
  at::Tensor sinks = {};  // [U]: a score of each head of the output that only the denominator of the softmax sees

  // Views of `length` positions, beginning with position `begin`, of every tensor that has positions, with the same mask: tokens
  // to decode, or a prefix. Needs key_len = query_len.
  Inputs tokens(int64_t begin, int64_t length) const;

  // The same inputs with each head of every tensor repeated as often as heads of the output share it, so that all tensors have as
  // many heads. The result shares memory with this where nothing is repeated.
  Inputs with_all_heads() const;

  // The sinks, or nothing where there are none.
  std::optional<at::Tensor> sinks_if_any() const { return sinks.defined() ? std::optional(sinks) : std::nullopt; }

  // The number of heads of the output: the largest of the numbers that the tensors have.
  int64_t output_heads() const;

  // int64 [H] on the device of q: the index in the call of each head that q has, and how many heads the call has.
  at::Tensor head_indices() const;
  int64_t heads_of_call() const;
};

}  // namespace attn
