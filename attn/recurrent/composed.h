// Recurrent attention composed of ATen operations. It runs on devices and dtypes that have no kernels, and kernels are compared
// with it.
#pragma once

#include "attn/recurrent/implementation.h"

namespace attn {

// As RecurrentImplementation::forward() without checkpoints, in chunks of 64 positions, or of 16 if each feature of the keys has
// a decay. The operations are recorded if gradients are enabled.
RecurrentResults composed_recurrent_forward(const RecurrentArguments& arguments);

// As RecurrentImplementation::backward(). Computes the forward pass again.
RecurrentGradients composed_recurrent_backward(const RecurrentArguments& arguments, const at::Tensor& grad_output,
                                               const at::Tensor& grad_final_state);

// As RecurrentImplementation::working_bytes().
double composed_recurrent_bytes(const Problem& problem, bool delta, bool normalize, bool feature_gates, bool backward);

}  // namespace attn
