// How linear attention cuts a problem into groups of heads and a sequence into splits, one for each thread block, and how large the
// states between them are.
#pragma once

#include <algorithm>
#include <cstdint>

namespace attn::cuda {

// What a GPU offers.
struct GpuLimits {
  int64_t multiprocessors, l2_bytes;
};
// The GPU that predictions are made for where there is none.
constexpr GpuLimits kH100 = {132, 50 << 20};

constexpr int64_t kChunk = 64;      // splits are whole chunks of positions
constexpr int64_t kMinSplit = 128;  // positions; shorter splits would spend more on their states than on their positions

struct Splits {
  int64_t length;         // positions in a split; the last split may be shorter
  int64_t count;          // splits of a sequence
  int64_t heads_at_once;  // heads of a group
};

// How many chunks a multiprocessor computes one after another for `blocks` blocks of `length` chunks, of which it holds
// `blocks_per_multiprocessor` at once. Blocks on the same multiprocessor share its throughput, and are spread evenly. Where it holds
// fewer than half of what it could, it is not faster than with half.
inline int64_t chunks_in_turn(int64_t blocks, int64_t length, int64_t blocks_per_multiprocessor, const GpuLimits& gpu) {
  const int64_t at_once = blocks_per_multiprocessor * gpu.multiprocessors, waves = blocks / at_once, rest = blocks % at_once;
  const int64_t half = (blocks_per_multiprocessor + 1) / 2;
  const int64_t last = rest == 0 ? 0 : std::max(half, (rest + gpu.multiprocessors - 1) / gpu.multiprocessors);
  return (waves * blocks_per_multiprocessor + last) * length;
}

// Chooses groups of heads and splits of `positions` positions. `heads` counts the heads of all batch entries. A group is so small
// that what is read twice, `bytes_per_position` for each of its positions, stays in the L2 cache, unless one head is larger.
// Among the groups and splits that are possible, these keep all multiprocessors equally busy.
inline Splits split_positions(int64_t heads, int64_t positions, int64_t bytes_per_position, int64_t blocks_per_multiprocessor,
                              const GpuLimits& gpu) {
  // A block spends about as long as two chunks take on its states, and the launches of a group take about as long as three.
  constexpr int64_t kChunksForStates = 2, kChunksForLaunches = 3;
  const auto ceil_of = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t chunks = std::max<int64_t>(1, ceil_of(positions, kChunk));
  heads = std::max<int64_t>(1, heads);
  const int64_t head_bytes = chunks * kChunk * bytes_per_position, cached = gpu.l2_bytes / 4 * 3;
  const int64_t max_heads = std::clamp<int64_t>(cached / head_bytes, 1, heads), min_groups = ceil_of(heads, max_heads);
  Splits best{};
  int64_t best_time = INT64_MAX;
  for (int64_t groups = min_groups; groups <= std::min(heads, 2 * min_groups); ++groups) {
    const int64_t heads_at_once = ceil_of(heads, groups), last_heads = heads - (groups - 1) * heads_at_once;
    if (last_heads <= 0) continue;
    for (int64_t wanted = 1; wanted <= std::max<int64_t>(1, positions / kMinSplit); ++wanted) {
      const int64_t length = ceil_of(chunks, wanted), count = ceil_of(chunks, length);
      if (count != wanted) continue;
      const auto time = [&](int64_t group_heads) {
        return kChunksForLaunches + chunks_in_turn(group_heads * count, length + kChunksForStates, blocks_per_multiprocessor, gpu);
      };
      const int64_t all = (groups - 1) * time(heads_at_once) + time(last_heads);
      if (all < best_time) best_time = all, best = {length * kChunk, count, heads_at_once};
    }
  }
  return best;
}

// How many numbers a state has: a matrix [dim, dim] and a vector [dim].
constexpr int64_t state_numbers(int64_t dim) { return dim * dim + dim; }

}  // namespace attn::cuda
