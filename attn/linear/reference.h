// Linear attention by definition in float64: every pair (query, key) is weighed by itself. Slow, and never timed.
#pragma once

#include <ATen/core/Tensor.h>

#include "attn/inputs.h"
#include "attn/linear/feature_map.h"

namespace attn::reference {

// The output rows `rows` (int64 [R], positions of queries) of Σ_j w_ij v_j / (Σ_j w_ij + epsilon) as [B,H,R,M], where j runs over
// the keys that query i sees and w_ij = φ(q_i)·φ(k_j) is the map's kernel ("Transformers are RNNs", equations 4 and 9). The
// inputs are float64.
at::Tensor linear(const Inputs& inputs, const at::Tensor& rows, const FeatureMap& feature_map, double epsilon);

// The denominator Σ_j w_ij + epsilon of the same rows, [B,H,R,1]. Does not read v.
at::Tensor linear_denominator(const Inputs& inputs, const at::Tensor& rows, const FeatureMap& feature_map, double epsilon);

}  // namespace attn::reference
