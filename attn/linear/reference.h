// Linear attention by its definition in float64: the weight of every pair (query, key) is computed. Slow, and never timed.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/inputs.h"
#include "attn/linear/feature_map.h"

namespace attn::reference {

// The output rows Σ_j w_ij v_j / (Σ_j w_ij + epsilon) at the query positions i in `rows` (int64 [R]), as [B,H,R,M]. The sums are
// over the keys j that query i sees, and w_ij = φ(q_i)·φ(k_j) is the map's kernel ("Transformers are RNNs", 2006.16236, equations
// 4 and 9). The inputs are float64.
at::Tensor linear(const Inputs& inputs, const at::Tensor& rows, const FeatureMap& feature_map, double epsilon);

// The denominator Σ_j w_ij + epsilon of the same rows, [B,H,R,1]. Does not read v.
at::Tensor linear_denominator(const Inputs& inputs, const at::Tensor& rows, const FeatureMap& feature_map, double epsilon);

}  // namespace attn::reference
