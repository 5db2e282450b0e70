// Linear attention: out_i = φ(q_i)ᵀ S_i / (φ(q_i)ᵀ Z_i + ε) with S_i = Σ_j φ(k_j) v_jᵀ [F,M] and Z_i = Σ_j φ(k_j) [F], where the
// sums run over the keys that query i sees ("Transformers are RNNs", 2006.16236, equations 4–12).
//
// These are PyTorch operators, with autograd and Meta kernels (operator.cpp):
//   attn::linear_attention(Tensor q, Tensor k, Tensor v, bool causal, Tensor? key_lengths=None, str feature_map="elu",
//                          float eps=1e-6, Tensor? projection=None, int chunk=128, str implementation="auto") -> Tensor
//   attn::linear_attention_step(Tensor q, Tensor k, Tensor v, Tensor(a!) sums, Tensor(b!) normalizers, str feature_map="elu",
//                               float eps=1e-6, str implementation="auto") -> Tensor
// The second is one token of decoding: q, k [B,H,1,D], v [B,H,1,M]; S [B,H,F,M] and Z [B,H,F] change in place, and no gradients
// are recorded. The first calls _linear_attention, which also returns each row's normalizer, and in autograd
// _linear_attention_backward. These two choose the implementation (implementation.h) or compose (composed.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "attn/linear/feature_map.h"

namespace attn {

struct LinearAttentionOptions {
  bool causal = false;                         // needs as many keys as queries
  std::optional<at::Tensor> key_lengths = {};  // int64 [B]
  std::string feature_map = "elu";             // a name that parse_feature_map() knows
  double epsilon = 1e-6;                       // ε
  std::optional<at::Tensor> projection = {};   // the directions of the feature map, [P,D]
  int64_t chunk = 128;                         // positions in a chunk of the composed causal form
  std::string implementation = "auto";         // as in ImplementationRequest::wanted
};

// q [B,H,N,D], k [B,H,L,D], v [B,H,L,M] → [B,H,N,M] in their dtype; half-precision inputs are accumulated in float32.
// Differentiable once in q, k and v. A query that sees no key gives zeros. A NaN at a hidden position reaches nothing, elsewhere
// exactly the rows that see it. Memory: the output, a number or two a row, and O(chunk·(chunk + F + M)) a head; backward also the
// three gradients.
at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearAttentionOptions& options);

}  // namespace attn
