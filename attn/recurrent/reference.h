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

// The output rows at the query positions `rows` (int64 [R]) as float64 [B,H,R,M], from float64 inputs that all have the same
// heads. g is [B,H,L] or, with a decay for each feature of the keys, [B,H,L,D]; g and beta may be undefined. Differentiable once.
// The states of some hundred positions are in memory at once.
at::Tensor recurrent(const Inputs& inputs, const at::Tensor& rows, const RecurrentDefinition& definition);

}  // namespace attn::reference
