// The feature maps of linear attention. Free of LibTorch, so that the kernels of the CPU and of CUDA share the list.
#pragma once

namespace attn {

// With x̃ = x/D^¼, and directions ω [P,D] that are drawn at random. rff is always computed in float64, because its weights have
// both signs and their sum may cancel to almost nothing.
enum class FeatureMapKind {
  elu,          // elu(x) + 1                            ("Transformers are RNNs", 2006.16236, equation 7)
  elu01,        // elu(x; α = 0.1) + 1
  relu,         // max(x, 0); a query or key without a positive entry has no weight
  taylor,       // [1, x/‖x‖], so that the kernel is 1 + q̂·k̂
  polynomial2,  // [1, x̃, x̃_a x̃_b (a < b), x̃_a²/√2], so that the kernel is 1 + s + s²/2, s = q·k/√D
  favor,        // exp(ωx̃ − ‖x̃‖²/2)/√P                  (FAVOR+, 2009.14794, equation 5), P features
  rff           // exp(‖x̃‖²/2) [cos ωx̃, sin ωx̃]/√P     (Rahimi & Recht 2007), 2·P features
};

// Maps that exponentiate return features relative to a scale, the logarithm of a factor, so that nothing overflows. States of
// such a map are relative to the largest scale of their keys.
constexpr bool has_scales(FeatureMapKind map) { return map == FeatureMapKind::favor || map == FeatureMapKind::rff; }

// The scale of an empty state and of a hidden key. It is finite, so that differences are; e to a difference from it is 0 or, for
// the ε of an empty state, infinite, which makes the output 0 as it must be.
constexpr double kNoScale = -1e30;

// Maps that project onto random directions.
constexpr bool has_directions(FeatureMapKind map) { return map == FeatureMapKind::favor || map == FeatureMapKind::rff; }

// Maps whose features each depend on one entry of x.
constexpr bool is_entrywise(FeatureMapKind map) {
  return map == FeatureMapKind::elu || map == FeatureMapKind::elu01 || map == FeatureMapKind::relu;
}

}  // namespace attn
