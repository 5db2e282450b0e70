// How linear attention's positions are shared out among blocks, and how large what they leave behind is.
#pragma once

#include <cstdint>

namespace attn::cuda {

// Positions go in so many splits that each multiprocessor has this many blocks, but none is shorter than this.
constexpr int64_t kBlocksPerMultiprocessor = 4;
#ifdef ATTN_CUDA_EMULATION
constexpr int64_t kLeastSplit = 64;  // so that short sequences are split in tests
#else
constexpr int64_t kLeastSplit = 256;
#endif

struct Splits {
  int64_t length, count;
};
inline Splits split_positions(int64_t heads, int64_t positions, int64_t multiprocessors) {
  const int64_t most = (positions + kLeastSplit - 1) / kLeastSplit;
  int64_t count = (kBlocksPerMultiprocessor * multiprocessors + heads - 1) / (heads > 0 ? heads : 1);
  count = count > most ? most : count;
  count = count < 1 ? 1 : count;
  int64_t length = ((positions + count - 1) / count + 63) / 64 * 64;  // whole chunks
  if (length == 0) length = 64;
  return {length, positions > 0 ? (positions + length - 1) / length : 1};
}

// The smallest dimension there is a kernel for that holds both, or 0.
inline int padded_dim(int64_t head_dim, int64_t value_dim) {
  const int64_t larger = head_dim > value_dim ? head_dim : value_dim;
  for (const int dim : {16, 32, 64, 128})
    if (larger <= dim) return dim;
  return 0;
}
// Of one state: a matrix and a vector.
constexpr int64_t state_numbers(int64_t dim) { return dim * dim + dim; }

}  // namespace attn::cuda
