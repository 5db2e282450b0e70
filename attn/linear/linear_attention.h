// Linear attention: out_i = φ(q_i)ᵀ S_i / (φ(q_i)ᵀ Z_i + ε), S_i = Σ_j φ(k_j) v_jᵀ [F,M], Z_i = Σ_j φ(k_j) [F], the sums over the
// keys that query i sees ("Transformers are RNNs", 2006.16236, equations 4–12).
//
// As PyTorch operators, with autograd and Meta kernels:
//   attn::linear_attention(Tensor q, Tensor k, Tensor v, bool causal, Tensor? key_lengths=None, str feature_map="elu",
//                          float eps=1e-6, Tensor? projection=None, int chunk=128, str implementation="auto") -> Tensor
//   attn::linear_attention_step(Tensor q, Tensor k, Tensor v, Tensor(a!) sums, Tensor(b!) normalizers, str feature_map="elu",
//                               float eps=1e-6, str implementation="auto") -> Tensor
// (one token of decoding: q, k [B,H,1,D], v [B,H,1,M]; S [B,H,F,M] and Z [B,H,F] change in place; records no gradients)
// and, behind the first, _linear_attention (the output and each row's normalizer) and _linear_attention_backward, which device
// kernels may replace.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>

#include "attn/linear/feature_map.h"

namespace attn {

struct LinearAttentionOptions {
  bool causal = false;                         // needs as many keys as queries
  std::optional<at::Tensor> key_lengths = {};  // int64 [B]
  std::string feature_map = "elu";             // a name that make_feature_map() knows
  double epsilon = 1e-6;                       // ε
  std::optional<at::Tensor> projection = {};   // of the feature map
  int64_t chunk = 128;                         // positions a chunk of the composed causal form
  std::string kernel = "auto";                 // see kernels::find_linear_kernels()
};

// q [B,H,N,D], k [B,H,L,D], v [B,H,L,M] → [B,H,N,M] in their dtype; sums are float32 for half-precision inputs.
// Differentiable once in q, k and v. A query that sees no key gives zeros; NaN at a hidden position reaches nothing, NaN
// elsewhere exactly the rows that see it. Extra memory: the output, a number or two a row, and O(chunk·(chunk + F + M)) a head;
// backward the three gradients besides.
//
// Causal attention, composed of ATen operations, goes in chunks: between them only S and Z are carried, inside one the lower
// triangle of φ(q)φ(k)ᵀ does the rest. Backward recomputes S and Z going forward, for q, and carries R_i = Σ_{j≥i} φ(q_j) g_jᵀ
// going backward, for k and v (Algorithm 1). Maps that scale their features carry S relative to the largest scale so far, which
// changes no result.
at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearAttentionOptions& options);

// S and Z after some keys, for all R = batches × heads at once.
struct LinearState {
  at::Tensor sums;       // [R,F,M+1]: S, and Z in the last column; relative to exp(log_scale)
  at::Tensor log_scale;  // [R,1,1]: the largest scale so far; undefined for maps that do not scale

  static LinearState zeros(const FeatureMap& map, int64_t rows, int64_t head_dim, int64_t value_dim,
                           const at::TensorOptions& options);
  // Takes in keys [R,T,D] and values [R,T,M] in the sums' type; `hidden` is bool [R,T,1], true for those that nobody sees.
  // In place, unless gradients are being recorded.
  void add(const FeatureMap& map, const at::Tensor& k, const at::Tensor& v, const at::Tensor& hidden = {});
};

struct LinearOutput {
  at::Tensor output;  // [R,T,M]
  at::Tensor
      normalizer;  // [R,T,1]: φ(q)ᵀZ + ε, relative to the scales of query and state; [R,T,2] with the state's for maps that scale
};

// What queries [R,T,D] get that see all of the state.
LinearOutput read(const LinearState& state, const FeatureMap& map, const at::Tensor& q, double epsilon);

// Gradients of the causal form: q, k, v and the output's gradient as in linear_attention(), normalizer [B,H,N,1] or [B,H,N,2] as
// in LinearOutput.
std::tuple<at::Tensor, at::Tensor, at::Tensor> causal_linear_gradients(const at::Tensor& output_gradient, const at::Tensor& q,
                                                                       const at::Tensor& k, const at::Tensor& v,
                                                                       const at::Tensor& normalizer,
                                                                       const std::optional<at::Tensor>& key_lengths,
                                                                       const std::string& feature_map, int64_t chunk);

}  // namespace attn
