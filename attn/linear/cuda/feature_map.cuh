// The entrywise feature maps of linear attention, and their gradients.
#pragma once

#include "attn/cuda/device.h"
#include "attn/linear/feature_map_kind.h"

namespace attn::cuda {

// φ(x) of one entry.
template <class T>
__device__ inline T apply_feature_map(FeatureMapKind map, T x) {
  if (map == FeatureMapKind::relu) return x > 0 || x != x ? x : T(0);
  if (x > 0) return x + 1;
  const T e = exp(x);
  return map == FeatureMapKind::elu ? e : T(0.1) * e + T(0.9);
}

// The gradient of the entry x, given the gradient of its feature.
template <class T>
__device__ inline T feature_map_gradient(FeatureMapKind map, T x, T grad_phi) {
  if (x > 0) return grad_phi;
  if (map == FeatureMapKind::relu) return 0;
  return grad_phi * exp(x) * (map == FeatureMapKind::elu ? T(1) : T(0.1));
}

}  // namespace attn::cuda
