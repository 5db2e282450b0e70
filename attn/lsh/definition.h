// Constants that define LSH attention's trax profile, for every implementation. Free of LibTorch.
#pragma once

namespace attn {

// Subtracted from the logit of a query and the key at its own position: any other visible key outweighs it.
constexpr double kOwnPositionPenalty = 1e5;
// Added to the mean square of a key before its root is taken.
constexpr double kMeanSquareEpsilon = 1e-6;

}  // namespace attn
