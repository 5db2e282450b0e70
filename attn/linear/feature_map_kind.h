// The list of the feature maps of linear attention. This header does not include LibTorch, so that CPU kernels and CUDA kernels
// can share it.
#pragma once

namespace attn {

// Here x̃ = x/D^¼, and ω [P,D] are random directions. rff is always computed in float64, because its attention weights have both
// signs, so that their sum may cancel to almost nothing.
enum class FeatureMapKind {
  elu,          // elu(x) + 1                            ("Transformers are RNNs", 2006.16236, equation 7)
  elu01,        // elu(x; α = 0.1) + 1
  relu,         // max(x, 0); a query or key without a positive entry has no weight
  taylor,       // [1, x/‖x‖], so that the kernel is 1 + q̂·k̂
  polynomial2,  // [1, x̃, x̃_a x̃_b (a < b), x̃_a²/√2], so that the kernel is 1 + s + s²/2, s = q·k/√D
  favor,        // exp(ωx̃ − ‖x̃‖²/2)/√P                  (FAVOR+, 2009.14794, equation 5), P features
  rff           // exp(‖x̃‖²/2) [cos ωx̃, sin ωx̃]/√P     (Rahimi & Recht 2007), 2·P features
};

// Whether the map exponentiates. The features of such a map may overflow, so they are divided by a factor for each row, whose
// logarithm is called the scale of the row. update.h says what that means for states.
constexpr bool exponentiates(FeatureMapKind map) { return map == FeatureMapKind::favor || map == FeatureMapKind::rff; }

// Whether the map projects onto random directions.
constexpr bool has_directions(FeatureMapKind map) { return map == FeatureMapKind::favor || map == FeatureMapKind::rff; }

// Whether each feature depends on one entry of x.
constexpr bool is_entrywise(FeatureMapKind map) {
  return map == FeatureMapKind::elu || map == FeatureMapKind::elu01 || map == FeatureMapKind::relu;
}

}  // namespace attn
