// Linear attention: out_i = φ(q_i)ᵀ S_i / (φ(q_i)ᵀ Z_i + ε) with S_i = Σ_j φ(k_j) v_jᵀ [F,M] and Z_i = Σ_j φ(k_j) [F], where the
// sums run over the keys that query i sees ("Transformers are RNNs", 2006.16236, equations 4–12).
//
// These are PyTorch operators, with autograd and Meta kernels (operator.cpp):
//   attn::linear_attention(Tensor q, Tensor k, Tensor v, bool causal, Tensor? key_lengths=None, str feature_map="elu",
//                          float eps=1e-6, Tensor? projection=None, int chunk=128, str implementation="auto") -> Tensor
//   attn::linear_attention_step(Tensor q, Tensor k, Tensor v, Tensor(a!) sums, Tensor(b!) normalizers, str feature_map="elu",
//                               float eps=1e-6, str implementation="auto") -> Tensor
// linear_attention_step decodes one token, q and k [B,H,1,D] and v [B,H,1,M]: it adds the token to `sums`, which is S [B,H,F,M],
// and `normalizers`, which is Z [B,H,F], in place and records no gradients. linear_attention calls the operator
// _linear_attention, which also returns each row's normalizer, and autograd calls _linear_attention_backward. These choose an
// implementation (implementation.h) or compose the computation of ATen operations (composed.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "attn/linear/feature_map.h"

namespace attn {

struct LinearAttentionOptions {
  bool causal = false;                         // query i sees keys 0…i; needs as many keys as queries
  std::optional<at::Tensor> key_lengths = {};  // int64 [B]
  std::string feature_map = "elu";             // a name that parse_feature_map() knows
  double epsilon = 1e-6;                       // ε
  std::optional<at::Tensor> projection = {};   // the directions of the feature map, [P,D]
  int64_t chunk = 128;                         // positions in a chunk of the composed causal form
  std::string implementation = "auto";         // as in ImplementationRequest::wanted
};

// q [B,H,N,D], k [B,H,L,D], v [B,H,L,M] → [B,H,N,M] in their dtype; half-precision inputs are accumulated in float32.
// Differentiable once in q, k and v. The output of a query that sees no key is zero. A NaN affects exactly the rows that see its
// position, except with the implementations "cuda" and "cuda-tf32". Allocates the output, one or two numbers per row, and
// O(chunk·(chunk + F + M)) numbers per head; the backward pass also allocates the three gradients. Throws c10::ValueError for
// wrong shapes, dtypes, devices and options; the message names the argument, its value and what was expected.
at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearAttentionOptions& options);

}  // namespace attn
