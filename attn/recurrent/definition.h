// Numbers that every implementation of recurrent attention shares. This header does not include LibTorch.
#pragma once

#include <cstdint>

namespace attn {

// What is added to the squared length of q and k where they are normalized, so that a row of zeros can be divided by its length.
constexpr double kLengthEpsilon = 1e-6;

// The forward pass stores the state before every so many positions, from which the backward pass computes the states in between
// again. At 64 dimensions that takes a quarter of the memory of the output, and the states in between, which one thread holds at
// once, fit a second-level cache.
constexpr int64_t kCheckpoint = 256;

// How many numbers such a state [K,V] has; its rows and columns are padded to multiples of 16.
constexpr int64_t checkpoint_numbers(int64_t key_dim, int64_t value_dim) {
  return (key_dim + 15) / 16 * 16 * ((value_dim + 15) / 16 * 16);
}

}  // namespace attn
