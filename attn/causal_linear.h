// Causal linear attention in chunks of ATen operations, with gradients that keep nothing of size N×D×M.
//
//   out_i = φ(q_i)ᵀ S_i / (φ(q_i)ᵀ Z_i + ε),   S_i = Σ_{j≤i} φ(k_j) v_jᵀ [D,M],   Z_i = Σ_{j≤i} φ(k_j) [D]
//
// ("Transformers are RNNs", equations 9–12 and Algorithm 1). Between chunks of C positions only S and Z are carried;
// inside a chunk the lower triangle of φ(q)φ(k)ᵀ [C,C] does the rest. The backward pass recomputes S and Z going forward
// (for q) and carries R_i = Σ_{j≥i} φ(q_j) g_jᵀ going backward (for k and v).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "attn/feature_map.h"

namespace attn {

// q, k [B,H,N,D], v [B,H,N,M] → [B,H,N,M] in their dtype; sums are float32 for half-precision inputs. `hidden_keys` is
// bool [B,1,N,1], true for keys that no query sees. `chunk` is C ≥ 1. Differentiable in q, k and v. Extra memory: the
// output, one number a row, and O(C·(C+D+M)) a head; backward the three gradients besides.
at::Tensor causal_linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const std::optional<at::Tensor>& hidden_keys, const FeatureMap& feature_map, double epsilon,
                                   int64_t chunk);

}  // namespace attn
