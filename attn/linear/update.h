// The updates of linear attention: how its state takes in a key, and what a query makes of the state. This header does not
// include LibTorch, so that CPU kernels and CUDA kernels can share it.
#pragma once

#include "attn/linear/feature_map_kind.h"

namespace attn {

// Every update adds κ vᵀ to the matrix S and κ to the vector Z of a state, and normalises: the output is φᵀS / (φᵀZ + ε).
enum class LinearUpdate {
  sum,        // S and Z are held as they are
  scaled_sum  // S and Z are held relative to the largest scale of their keys, because features may be beyond the range of a float
};

// The update that computes linear attention with this map.
constexpr LinearUpdate update_for(FeatureMapKind map) {
  return exponentiates(map) ? LinearUpdate::scaled_sum : LinearUpdate::sum;
}

// "sum" or "scaled-sum", for messages.
constexpr const char* update_name(LinearUpdate update) { return update == LinearUpdate::sum ? "sum" : "scaled-sum"; }

// Whether a number follows the vector of a state: its scale, the logarithm of the factor that S and Z are relative to. The
// normalizers of rows are then followed by the scale of the state that the row saw.
constexpr bool has_scales(LinearUpdate update) { return update == LinearUpdate::scaled_sum; }

// How many numbers the normalizer of a row has.
constexpr int normalizer_numbers(LinearUpdate update) { return has_scales(update) ? 2 : 1; }

// The scale of an empty state and of a hidden key. It is finite, so that differences of scales are finite. exp(kNoScale − s) is 0
// for every other scale s. Relative to an empty state ε is infinite, which makes the output 0, as it must be.
constexpr double kNoScale = -1e30;

}  // namespace attn
