// The definition of the causal depthwise convolution that models run before linear attention, and ConvolutionImplementation, the
// interface of what computes it, with its registry.
//
// Each channel d of x [B,D,T] is convolved with its own weights [W], of which the last is for the position itself:
//   u[d,t] = bias[d] + Σ_i weight[d,i] · x[d, t − (W−1) + i]
//   output[d,t] = u, or with `silu` u / (1 + e^(−u))
// The initial state of a sequence is the W − 1 inputs before it, by default zeros; its final state is the last W − 1 inputs of
// the initial state followed by x. Sums are computed in float64 for float64 tensors, and in float32 for others.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "attn/implementations.h"

namespace attn {

struct ConvolutionArguments {
  at::Tensor x;                             // [B,D,T]; any strides
  at::Tensor weight;                        // [D,W], of any floating dtype
  std::optional<at::Tensor> bias;           // [D], of the dtype of weight
  std::optional<at::Tensor> initial_state;  // [N,D,W−1], in the dtype of x
  // int64 [N+1]: a batch of 1 packs N sequences, one after the other, which begin and end at these positions. Without it every
  // batch entry is a sequence, and N = B.
  std::optional<at::Tensor> cu_seqlens;
  // int32 [B,T], not together with initial_state or cu_seqlens: a new sequence begins wherever the number changes. Outputs at
  // positions with a negative number are 0. There are no final states then.
  std::optional<at::Tensor> seq_idx;
  bool silu = false;
};

// `final_state` is [N,D,W−1], contiguous, in the dtype of x, and has no elements with seq_idx. `output` [B,D,T] has the dtype of
// x, and the layout of empty_like_x().
struct ConvolutionResults {
  at::Tensor output, final_state;
};

// Gradients have the dtypes of the inputs. Those of tensors that are not given are undefined.
struct ConvolutionGradients {
  at::Tensor x, weight, bias, initial_state;
};

class ConvolutionImplementation {
 public:
  virtual ~ConvolutionImplementation() = default;
  virtual std::string name() const = 0;
  virtual ConvolutionResults forward(const ConvolutionArguments& arguments) const = 0;
  // Gradients of results may be undefined, which stands for zeros.
  virtual ConvolutionGradients backward(const ConvolutionArguments& arguments, const at::Tensor& grad_output,
                                        const at::Tensor& grad_final_state) const = 0;
};

// The implementations for the CPU are "avx512", "avx2", "neon" and "portable"; attn/convolution/cpu/implementation.cpp registers
// them. There are none for GPUs. In a request, head_dim is the width W, and value_dim is not used.
using ConvolutionRegistry = ImplementationRegistry<ConvolutionImplementation, ImplementationRequest>;
ConvolutionRegistry& convolution_implementations();

// Whether neighbouring channels of x [B,D,T] are neighbours in memory, as in a transposed [B,T,D].
bool is_channels_last(const at::Tensor& x);
// An uninitialized tensor with the sizes and dtype of x. Channels are neighbours in memory if those of x are, otherwise positions
// are.
at::Tensor empty_like_x(const at::Tensor& x);
// An uninitialized final state, [N,D,W−1], or a tensor without elements if there is seq_idx.
at::Tensor empty_final_state(const ConvolutionArguments& arguments);

}  // namespace attn
