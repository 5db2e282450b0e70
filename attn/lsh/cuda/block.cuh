// What the forward and backward kernels of LSH attention share: a thread block's shared memory, and the functions that fill it.
//
// A block works on up to S::kRows queries (64, or 32 for float32 tiles of 128 columns) of one chunk in one round. Each warp owns
// 16 of them. The block gathers the keys of the chunk and of the chunk before it by position, in tiles of S::kRows rows. It owns
// this shared memory, where kDim is the tile dimension that head_dim and value_dim are padded to:
//
//   tile[0…3]         [kRows, kDim]   rows of q, k, v and, in the backward pass, g; in S::Tile (bfloat16 or float32)
//   scores            [kRows, kRows]  weights, or gradients of logits, in S::Tile
//   query_positions   [kRows]         int32; −1 in rows without a position
//   key_positions     [kRows]         the same
//   query_not_finite  [kRows]         int32; 1 where a row has an entry that is not finite
//   key_not_finite    [kRows]         the same
//   key_scales        [kRows]         float32: the key of x is x times this
//   previous_factor   [kRows]         float32: the factor of the output of the rounds so far, in the forward pass
//   share             [kRows]         float32: the factor of the output of this round, in the forward pass
#pragma once

#include "attn/cuda/tiles.cuh"
#include "attn/lsh/cuda/params.h"
#include "attn/lsh/definition.h"

namespace attn::cuda {

// The chunk that a chunk looks back to, or −1. Chunks are counted over all rounds.
__device__ inline int64_t chunk_before(const LshParams& params, int64_t chunk) {
  const int64_t all = params.rounds * params.chunks;
  if (params.trax) return all == 1 ? -1 : (chunk + all - 1) % all;
  return chunk % params.chunks == 0 ? -1 : chunk - 1;
}

// The key of x is x · key_scale, which includes 1/√D; `squares` is ‖x‖².
__device__ inline float key_scale(const LshParams& params, float squares) {
  const float dim = float(params.head_dim);
  if (params.trax) return 1 / sqrtf(squares / dim + float(kMeanSquareEpsilon)) / sqrtf(dim);
  return squares == 0 ? 0 : 1 / sqrtf(squares) / sqrtf(dim);
}

// The size of a block's shared memory with this many row tiles.
template <class S>
constexpr size_t lsh_shared_bytes(int tiles) {
  return tiles * S::tile_bytes() + S::score_bytes() + sizeof(int32_t) * 7 * S::kRows;
}

template <class S>
class LshBlock {
 public:
  using E = typename S::E;
  using Tile = typename S::Tile;

  // `tiles` is the number of row tiles that the kernel uses. The block takes the queries of tile `query_tile` of a chunk in
  // `round`; `number` is index · chunks + the number of the chunk in the round.
  __device__ LshBlock(const LshParams& all_params, int tiles, int64_t round, int64_t number, int64_t query_tile)
      : params(all_params),
        chunk(round * all_params.chunks + number % all_params.chunks),
        index(number / all_params.chunks),
        first_query(query_tile * S::kRows) {
    char* p = shared_memory();
    for (int t = 0; t < tiles; ++t, p += S::tile_bytes()) tile[t] = reinterpret_cast<Tile*>(p);
    scores = reinterpret_cast<Tile*>(p), p += S::score_bytes();
    query_positions = reinterpret_cast<int32_t*>(p), key_positions = query_positions + S::kRows;
    query_not_finite = key_positions + S::kRows, key_not_finite = query_not_finite + S::kRows;
    key_scales = reinterpret_cast<float*>(key_not_finite + S::kRows), previous_factor = key_scales + S::kRows,
    share = previous_factor + S::kRows;
    const int64_t length = params.key_lengths ? params.key_lengths[index / params.heads] : params.length;
    visible_keys = length < 0 ? 0 : length > params.length ? params.length : length;
  }

  // The first row of the block's head in x.
  __device__ E* rows(const StridedTensor& x) const {
    return static_cast<E*>(x.data) + index / params.heads * x.batch_stride + index % params.heads * x.head_stride;
  }
  // The index in arrays [G,R,N] by position, in the block's round.
  __device__ int64_t by_position(int64_t position) const {
    return (index * params.rounds + chunk / params.chunks) * params.length + position;
  }
  // The number of positions in a chunk.
  __device__ int64_t size_of(int64_t source) const {
    const int64_t rest = params.length - source % params.chunks * params.chunk;
    return rest < params.chunk ? rest : params.chunk;
  }
  // The position at a place of a chunk. Returns −1 for places after the chunk's end, and for positions below 0 or of at
  // least `limit`: the order may come from a caller in Python.
  __device__ int32_t position_at(int64_t source, int64_t place, int64_t limit) const {
    if (place >= size_of(source)) return -1;
    const int64_t* order =
        params.order + (index * params.rounds + source / params.chunks) * params.length + source % params.chunks * params.chunk;
    return order[place] >= 0 && order[place] < limit ? int32_t(order[place]) : -1;
  }

  // Loads the rows of x at these positions into a tile, with zeros where a position is −1.
  __device__ void gather(Tile* to, const StridedTensor& x, const int32_t* positions, int dim) const {
    const E* from = rows(x);
    load_rows<S>(
        to, dim, [&](int t) { return positions[t] >= 0 ? from + int64_t(positions[t]) * x.row_stride : nullptr; },
        [](float entry, int, int) { return entry; });
  }
  // Sets those of the warp's rows to zeros that have an entry that is not finite, and sets their not_finite to 1. Otherwise 0 ·
  // NaN would make rows NaN that do not see them. Calls squares(row, sum of the squares of its entries) for every row.
  template <class Squares>
  __device__ void zero_not_finite(Tile* x, int32_t* not_finite, const Squares& squares) const {
    const int row = warp() * 16 + lane() / 2;
    Tile* entries = x + row * S::kStride;
    float zero = 0, sum = 0;
    for (int d = lane() % 2; d < S::kDim; d += 2) {
      const float entry = to_float(entries[d]);
      zero += entry * 0, sum += entry * entry;
    }
    zero = sum_over_lanes(zero, 2), sum = sum_over_lanes(sum, 2);
    const bool finite = zero == 0;
    if (!finite)
      for (int d = lane() % 2; d < S::kDim; d += 2) entries[d] = from_float<Tile>(0);
    if (lane() % 2 == 0) {
      if (!finite) not_finite[row] = 1;
      squares(row, finite ? sum : 0);
    }
  }

  __device__ void load_queries(Tile* q) const {
    for (int t = thread(); t < S::kRows; t += S::kThreads)
      query_positions[t] = position_at(chunk, first_query + t, params.length), query_not_finite[t] = 0;
    __syncthreads();
    gather(q, params.qk, query_positions, params.head_dim);
    __syncthreads();
    zero_not_finite(q, query_not_finite, [](int, float) {});
  }

  // Loads each tile of keys that the chunk sees into k and its values into v, and calls work(before, first) after each: whether
  // the keys are those of the chunk before, and the place in their chunk of the first one.
  template <class Work>
  __device__ void for_each_key_tile(Tile* k, Tile* v, const Work& work) const {
    for (int i = 0; i < 2; ++i) {
      const int64_t source = i == 0 ? chunk : chunk_before(params, chunk);
      if (source < 0) continue;
      for (int64_t first = 0; first < size_of(source); first += S::kRows) {
        __syncthreads();
        for (int t = thread(); t < S::kRows; t += S::kThreads)
          key_positions[t] = position_at(source, first + t, visible_keys), key_not_finite[t] = 0;
        __syncthreads();
        gather(k, params.qk, key_positions, params.head_dim);
        gather(v, params.v, key_positions, params.value_dim);
        __syncthreads();
        zero_not_finite(k, key_not_finite, [&](int row, float squares) { key_scales[row] = key_scale(params, squares); });
        zero_not_finite(v, key_not_finite, [](int, float) {});
        __syncthreads();
        work(i == 1, first);
      }
    }
  }

  // Whether the query in `row` sees the key in `column` of the current tile.
  __device__ bool sees(int row, int column) const {
    const int32_t query = query_positions[row], key = key_positions[column];
    return query >= 0 && key >= 0 && (!params.causal || key <= query);
  }
  // Whether the trax profile's penalty for a query's own position applies.
  __device__ bool is_own(int row, int column) const { return params.trax && query_positions[row] == key_positions[column]; }

  const LshParams& params;
  int64_t chunk;         // counted over all rounds
  int64_t index;         // batch · heads + head
  int64_t first_query;   // the place in the chunk at which the block's queries begin
  int64_t visible_keys;  // positions from here on are hidden
  // These lie in shared memory; see the top of this file.
  Tile *tile[4], *scores;
  int32_t *query_positions, *key_positions, *query_not_finite, *key_not_finite;
  float *key_scales, *previous_factor, *share;
};

}  // namespace attn::cuda
