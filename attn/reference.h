// Softmax attention by definition in float64: every pair (query, key) is weighed by itself. Slow, and never timed.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/inputs.h"

namespace attn::reference {

// The output rows `rows` (int64 [R], positions of queries) of softmax(q kᵀ/√D + mask) v as [B,H,R,M]. A row that sees no key is
// zero. The inputs are float64.
at::Tensor softmax(const Inputs& inputs, const at::Tensor& rows);

}  // namespace attn::reference
