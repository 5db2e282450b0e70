// How linear attention cuts a sequence into splits, one for each thread block, and how large the states between them are.
#pragma once

#ifdef ATTN_CUDA_EMULATION
#include ATTN_CUDA_EMULATION
#endif

#include <cstdint>

namespace attn::cuda {

// A sequence is cut into so many splits that each multiprocessor gets kBlocksPerMultiprocessor blocks, but into fewer if they
// would be shorter than kMinSplit positions.
constexpr int64_t kBlocksPerMultiprocessor = 4;
#ifdef ATTN_CUDA_EMULATION
constexpr int64_t kMinSplit = emulation::kMinSplit;
#else
constexpr int64_t kMinSplit = 256;
#endif

struct Splits {
  int64_t length;  // positions in a split; the last split may be shorter
  int64_t count;
};
// `heads` counts the heads of all batch entries.
inline Splits split_positions(int64_t heads, int64_t positions, int64_t multiprocessors) {
  const int64_t max_count = (positions + kMinSplit - 1) / kMinSplit;
  int64_t count = (kBlocksPerMultiprocessor * multiprocessors + heads - 1) / (heads > 0 ? heads : 1);
  count = count > max_count ? max_count : count;
  count = count < 1 ? 1 : count;
  int64_t length = ((positions + count - 1) / count + 63) / 64 * 64;  // whole chunks
  if (length == 0) length = 64;
  return {length, positions > 0 ? (positions + length - 1) / length : 1};
}

// How many numbers a state has: a matrix [dim, dim] and a vector [dim].
constexpr int64_t state_numbers(int64_t dim) { return dim * dim + dim; }

}  // namespace attn::cuda
