// The causal convolution composed of ATen operations. It runs for devices, dtypes and widths that have no kernels, and kernels
// are compared with it.
#pragma once

#include "attn/convolution/implementation.h"

namespace attn {

// As ConvolutionImplementation::forward(). The operations are recorded if gradients are enabled.
ConvolutionResults composed_convolution_forward(const ConvolutionArguments& arguments);

// As ConvolutionImplementation::backward(). Computes the forward pass again.
ConvolutionGradients composed_convolution_backward(const ConvolutionArguments& arguments, const at::Tensor& grad_output,
                                                   const at::Tensor& grad_final_state);

}  // namespace attn
