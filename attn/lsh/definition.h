// Constants of LSH attention's trax profile, shared by every implementation. This header does not include LibTorch.
#pragma once

namespace attn {

// Subtracted from the logit of a query and the key at its own position, so that any other visible key outweighs that key.
constexpr double kOwnPositionPenalty = 1e5;
// Added to the mean of the squares of a key's entries before the square root is taken.
constexpr double kMeanSquareEpsilon = 1e-6;

}  // namespace attn
