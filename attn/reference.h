// Softmax attention by its definition in float64: the weight of every pair (query, key) is computed. Slow, and never timed.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/inputs.h"

namespace attn::reference {

// The output rows of softmax(q kᵀ/√D + mask) v at the query positions `rows` (int64 [R]), as [B,H,R,M]. A row that sees no key is
// zero. If there are sinks, the softmax of head h is over the scores and sinks[h], and then the sink's weight is left out. The
// inputs are float64.
at::Tensor softmax(const Inputs& inputs, const at::Tensor& rows);

// The same over the pairs that `visible` (bool, broadcastable to [B,H,R,L]) names, whatever the mask says of them.
at::Tensor softmax_of_pairs(const Inputs& inputs, const at::Tensor& rows, const at::Tensor& visible);

// The weights of the values in these rows, [B,H,R,L]. Those of a row that sees no key are zero.
at::Tensor softmax_weights(const Inputs& inputs, const at::Tensor& rows);

}  // namespace attn::reference
