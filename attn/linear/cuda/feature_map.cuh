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

// The derivative of elu or relu at an entry, given φ of it.
__device__ inline float derivative_of_feature(bool relu, float feature) {
  return relu ? feature > 0 ? 1.0f : 0.0f : min_or_nan(feature, 1);
}
// The same for two bfloat16 features in one word.
__device__ inline uint32_t derivatives_of_features(bool relu, uint32_t features) {
  constexpr uint32_t kLarge = 0x7f007f00;  // 2¹²⁷: a positive number times this is at least 1
  return min_of_pairs(multiply_pairs(features, relu ? kLarge : kOnes), kOnes);
}

// The maps as one formula without branches, for tiles: φ(x) = max(x, 0) + scale · exp(min(x, 0)) + offset.
struct BranchFreeFeatureMap {
  __device__ explicit BranchFreeFeatureMap(FeatureMapKind map)
      : scale(map == FeatureMapKind::elu     ? 1
              : map == FeatureMapKind::elu01 ? 0.1f
                                             : 0),
        log2_scale(map == FeatureMapKind::elu     ? 0
                   : map == FeatureMapKind::elu01 ? -3.3219281f
                                                  : -INFINITY),
        offset(map == FeatureMapKind::elu01 ? 0.9f : 0) {}

  // φ(x) with the accuracy of float32.
  __device__ float exact(float x) const { return max_or_nan(x, 0) + (scale * expf(min_or_nan(x, 0)) + offset); }
  // φ(x) with a relative error of about 2⁻²¹, for features that are rounded further.
  __device__ float fast(float x) const { return max_or_nan(x, 0) + exp_term(min_or_nan(x, 0)); }

  // φ of two bfloat16 numbers in one word, rounded to bfloat16 once: of the two terms, either the first is 0 or the second is 1
  // (for relu, 0).
  __device__ uint32_t fast_pair(uint32_t x) const {
    const uint32_t low = min_of_pairs(x, 0);
    return add_pairs(max_of_pairs(x, 0),
                     pair_of<BFloat16>(exp_term(first_of_pair<BFloat16>(low)), exp_term(second_of_pair<BFloat16>(low))));
  }

  // The derivatives at two bfloat16 numbers in one word: at positive numbers 1.
  __device__ uint32_t derivatives_at(uint32_t x) const {
    const uint32_t low = min_of_pairs(x, 0);
    return max_of_pairs(derivatives_of_features(/*relu=*/true, x),
                        pair_of<BFloat16>(scaled_exp(first_of_pair<BFloat16>(low)), scaled_exp(second_of_pair<BFloat16>(low))));
  }
  // The derivative at x.
  __device__ float derivative_at(float x) const { return x > 0 ? 1 : scaled_exp(x); }

  float scale, log2_scale, offset;

 private:
  __device__ float scaled_exp(float x) const { return fast_exp2(fmaf(x, kLog2OfE, log2_scale)); }
  __device__ float exp_term(float x) const { return scaled_exp(x) + offset; }
};

}  // namespace attn::cuda
