// How CPU kernels see the rows of a tensor. This header does not include LibTorch.
#pragma once

#include <cstdint>

namespace attn::cpu {

// Rows of buffers and of states are padded with zeros to a multiple of this many numbers.
constexpr int64_t kPadding = 16;
constexpr int64_t padded(int64_t n) { return (n + kPadding - 1) / kPadding * kPadding; }

// How many positions, rows of q, k and v, the kernels of linear and recurrent attention process together: a chunk.
constexpr int kChunkRows = 16;

// The rows of a matrix [T,dim] whose rows are contiguous.
struct Rows {
  void* data = nullptr;
  int64_t stride = 0;  // from one row to the next, in elements
};

}  // namespace attn::cpu
