// How linear attention cuts a problem into groups of heads and a sequence into splits, one for each thread block, and how large
// the states between them are.
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

constexpr int64_t kSplitUnit = 64;  // splits are whole chunks of positions
constexpr int64_t kMinSplit = 128;  // positions; shorter splits would spend more on their states than on their positions

struct Splits {
  int64_t length;         // positions in a split; the last split may be shorter
  int64_t count;          // splits of a sequence
  int64_t heads_at_once;  // heads of a group
};

// How many chunks a multiprocessor computes one after another for `blocks` blocks of `length` chunks, of which it holds
// `blocks_per_multiprocessor` at once. Blocks on the same multiprocessor share its throughput, and are spread evenly. Where it
// holds fewer than half of what it could, it is not faster than with half.
inline int64_t chunks_in_turn(int64_t blocks, int64_t length, int64_t blocks_per_multiprocessor, const GpuLimits& gpu) {
  const int64_t at_once = blocks_per_multiprocessor * gpu.multiprocessors, waves = blocks / at_once, rest = blocks % at_once;
  const int64_t half = (blocks_per_multiprocessor + 1) / 2;
  const int64_t last = rest == 0 ? 0 : std::max(half, (rest + gpu.multiprocessors - 1) / gpu.multiprocessors);
  return (waves * blocks_per_multiprocessor + last) * length;
}

// The time of a plan in chunks of a multiprocessor: of the chunks alone, or with what blocks and launches take beside them.
struct SplitsTime {
  int64_t chunks, all;
};
inline SplitsTime time_of(const Splits& splits, int64_t heads, int64_t blocks_per_multiprocessor, const GpuLimits& gpu) {
  // A block spends about as long as two chunks take on its states, and the launches of a group take about as long as three.
  constexpr int64_t kChunksForStates = 2, kChunksForLaunches = 3;
  const int64_t chunks = splits.length / kSplitUnit, groups = (heads + splits.heads_at_once - 1) / splits.heads_at_once;
  const auto chunks_of_group = [&](int64_t group_heads, int64_t length) {
    return chunks_in_turn(group_heads * splits.count, length, blocks_per_multiprocessor, gpu);
  };
  const auto chunks_of_all = [&](int64_t length) {
    return (groups - 1) * chunks_of_group(splits.heads_at_once, length) +
           chunks_of_group(heads - (groups - 1) * splits.heads_at_once, length);
  };
  return {chunks_of_all(chunks), chunks_of_all(chunks + kChunksForStates) + groups * kChunksForLaunches};
}

// Chooses groups of heads and splits of `positions` positions. `heads` counts the heads of all batch entries. A group is so small
// that what is read twice, `bytes_per_position` for each of its positions, stays in the L2 cache, unless one head is larger. Of
// the plans that keep the multiprocessors busy with chunks for at least 90 % of the time, or of all if there is none, it is the
// fastest.
inline Splits split_positions(int64_t heads, int64_t positions, int64_t bytes_per_position, int64_t blocks_per_multiprocessor,
                              const GpuLimits& gpu) {
  constexpr int64_t kMoreGroups = 16;  // more than the fewest that are possible
  const auto ceil_of = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t chunks = std::max<int64_t>(1, ceil_of(positions, kSplitUnit));
  heads = std::max<int64_t>(1, heads);
  const int64_t head_bytes = chunks * kSplitUnit * bytes_per_position, cached = gpu.l2_bytes / 4 * 3;
  const int64_t max_heads = std::clamp<int64_t>(cached / head_bytes, 1, heads), min_groups = ceil_of(heads, max_heads);
  Splits best{};
  bool best_is_busy = false;
  int64_t best_time = INT64_MAX;
  for (int64_t groups = min_groups; groups <= std::min(heads, min_groups + kMoreGroups); ++groups) {
    const int64_t heads_at_once = ceil_of(heads, groups);
    if (ceil_of(heads, heads_at_once) != groups) continue;
    for (int64_t wanted = 1; wanted <= std::max<int64_t>(1, positions / kMinSplit); ++wanted) {
      const int64_t length = ceil_of(chunks, wanted), count = ceil_of(chunks, length);
      if (count != wanted) continue;
      const Splits splits{length * kSplitUnit, count, heads_at_once};
      const auto time = time_of(splits, heads, blocks_per_multiprocessor, gpu);
      const bool busy = heads * chunks * 10 >= time.chunks * gpu.multiprocessors * 9;
      if (busy == best_is_busy ? time.all < best_time : busy) {
        best = splits;
        best_is_busy = busy;
        best_time = time.all;
      }
    }
  }
  return best;
}

// How many numbers a state has: a matrix [dim, dim] and a vector [dim].
constexpr int64_t state_numbers(int64_t dim) { return dim * dim + dim; }

}  // namespace attn::cuda
