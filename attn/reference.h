// Attention by definition in float64: every pair (query, key) is weighed one by one. Slow, obvious, never timed.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/linear/feature_map.h"
#include "attn/mask.h"

namespace attn::reference {

// The output rows `rows` (int64 [R]) of softmax(q kᵀ/√D + mask) v, as [B,H,R,M].
at::Tensor softmax(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask, const at::Tensor& rows);

// The same rows of Σ_j w_ij v_j / (Σ_j w_ij + epsilon) with w_ij = φ(q_i)·φ(k_j), the map's kernel, over the visible j
// ("Transformers are RNNs", equations 4 and 9).
at::Tensor linear(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask, const at::Tensor& rows,
                  const FeatureMap& feature_map, double epsilon);

// Σ_j w_ij + epsilon of the same rows, [B,H,R,1].
at::Tensor linear_denominator(const at::Tensor& q, const at::Tensor& k, const Mask& mask, const at::Tensor& rows,
                              const FeatureMap& feature_map, double epsilon);

}  // namespace attn::reference
