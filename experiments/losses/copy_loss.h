// The loss of the copy task: cross entropy and accuracy over the predictions that a mask selects.
#pragma once

#include <ATen/core/Tensor.h>

namespace experiments {

// The mean cross entropy in nats over the positions where mask is true, a scalar that is differentiable in the logits: logits
// [B,N,C], targets int64 [B,N] from 0 to C-1, mask bool [B,N]. Targets elsewhere are ignored, whatever they are. It is 0, with
// gradients of 0, if the mask selects nothing. Throws c10::ValueError for other shapes and dtypes.
at::Tensor masked_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& mask);

// The share of the positions where mask is true whose largest logit is that of the target, a float64 scalar; 0 if the mask
// selects nothing. Arguments and errors as above.
at::Tensor masked_accuracy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& mask);

}  // namespace experiments
