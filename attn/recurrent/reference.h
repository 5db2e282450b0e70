// The float64 reference of recurrent attention, written token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/inputs.h"

namespace attn::reference {

struct RecurrentDefinition {
  bool delta = true;  // the rule of the update, see attn/recurrent/recurrent_attention.h
  double scale = 1;
  bool normalize = false;
};

// The output rows at the query positions `rows` (int64 [R]) as [B,H,R,M], from inputs that all have the same heads. g is [B,H,L]
// or [B,H,L,D], with a decay for each feature of the keys; g and beta may be undefined. Differentiable; the states of some
// hundred positions are in memory at once.
at::Tensor recurrent(const Inputs& inputs, const at::Tensor& rows, const RecurrentDefinition& definition);

}  // namespace attn::reference
