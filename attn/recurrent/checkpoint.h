// How often the forward pass of recurrent attention stores the state. This header does not include LibTorch.
#pragma once

#include <cstdint>

namespace attn {

// The forward pass stores the state before every so many positions, from which the backward pass computes the states in between
// again. At 64 dimensions that takes a quarter of the memory of the output, and the states in between, which one thread holds at
// once, fit a second-level cache.
constexpr int64_t kCheckpoint = 256;

}  // namespace attn
