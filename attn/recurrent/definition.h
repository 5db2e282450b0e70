// Constants that all implementations of recurrent attention share. This header does not include LibTorch.
#pragma once

#include <cstdint>

namespace attn {

// Is added to the squared length of rows of q and k that are normalized, so that a row of zeros is not divided by zero.
constexpr double kLengthEpsilon = 1e-6;

// The number of positions between two states that the forward pass stores, and from which the backward pass computes the states
// in between again. With 64 dimensions the stored states take a quarter of the memory of the output, and the states in between,
// of which each thread has those of one interval, fit a second-level cache.
constexpr int64_t kCheckpoint = 256;

// How many numbers a stored state [K,V] has; K and V are padded to multiples of 16.
constexpr int64_t checkpoint_numbers(int64_t key_dim, int64_t value_dim) {
  return (key_dim + 15) / 16 * 16 * ((value_dim + 15) / 16 * 16);
}

// The exponential of a smaller number is 0 in float32 and in float64, so that such a g clears the state.
constexpr double kSmallestLogarithm32 = -104, kSmallestLogarithm64 = -745.2;

}  // namespace attn
