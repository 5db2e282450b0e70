// Linear attention composed of ATen operations, for any device, dtype and feature map.
//
// The causal form processes the positions in chunks. S and Z of the keys before a chunk are carried from chunk to chunk; the
// lower triangle of φ(q)φ(k)ᵀ adds the keys of the chunk itself. The backward pass recomputes S and Z going forward over the
// positions for the gradient of q. Going back over them, it accumulates R_i = Σ_{j≥i} φ(q_j) g′_jᵀ, g′ = grad_output /
// normalizer, for the gradients of k and v ("Transformers are RNNs", 2006.16236, Algorithm 1). Without the causal mask all keys
// are added to one S and Z. For maps with scales S and Z are stored relative to the largest scale so far, which changes no
// result.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "attn/linear/feature_map.h"
#include "attn/linear/implementation.h"

namespace attn {

// The output and the normalizer, as LinearImplementation::forward() returns them. `chunk` is the number of positions in a chunk
// of the causal form.
std::tuple<at::Tensor, at::Tensor> composed_linear_forward(const LinearArguments& arguments, int64_t chunk);

// grad_q, grad_k and grad_v, as LinearImplementation::backward() returns them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> composed_linear_backward(const LinearArguments& arguments,
                                                                        const at::Tensor& grad_output,
                                                                        const at::Tensor& normalizer, int64_t chunk);

// One decoding step, as LinearImplementation::step() does it, for maps without scales and directions.
at::Tensor composed_linear_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearDecodingState& state,
                                FeatureMapKind map, double epsilon);

// S and Z of some keys, for all R = batch · heads heads at once.
struct LinearState {
  at::Tensor sums;       // [R,F,M+1]: S, with Z in the last column; relative to exp(log_scale)
  at::Tensor log_scale;  // [R,1,1]: the largest scale so far; undefined for maps without scales

  static LinearState zeros(const FeatureMap& map, int64_t rows, int64_t head_dim, int64_t value_dim,
                           const at::TensorOptions& options);
  // Adds keys [R,T,D] and values [R,T,M] in the accumulator dtype. `hidden` is bool [R,T,1], true for keys that no query sees.
  // Works in place, unless gradients are being recorded.
  void add(const FeatureMap& map, const at::Tensor& k, const at::Tensor& v, const at::Tensor& hidden = {});
};

struct LinearOutput {
  at::Tensor output;  // [R,T,M]
  // [R,T,1]: φ(q)ᵀZ + ε. For maps with scales [R,T,2]: φ(q)ᵀZ + ε relative to the scales of query and state, and the state's
  // scale.
  at::Tensor normalizer;
};

// The output of queries [R,T,D] that see all keys in the state.
LinearOutput read(const LinearState& state, const FeatureMap& map, const at::Tensor& q, double epsilon);

}  // namespace attn
