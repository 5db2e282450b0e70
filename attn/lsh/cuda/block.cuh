// What the forward and backward kernels of LSH attention share: a thread block's shared memory, and the functions that fill it.
//
// A block works on up to S::kRows queries (64, or 32 for float32 tiles of 128 columns) of one chunk in one round. Each warp owns
// 16 of them. The block gathers the keys of the chunk and of the chunk before it by position, in tiles of S::kRows rows. It owns
// this shared memory, where kDim is the tile dimension that head_dim and value_dim are padded to:
//
//   tile[0…3]         [kRows, kDim]   rows of q, k, v and, in the backward pass, g; in S::Tile (bfloat16 or float32)
//   scores            [kRows, kRows]  in the backward pass: weights, or gradients of logits, in S::Tile
//   query_positions   [kRows]         int32; −1 in rows without a position
//   key_positions     [kRows]         the same
//   query_not_finite  [kRows]         int32; 1 where a row has an entry that is not finite
//   key_not_finite    [kRows]         the same
//   key_scales        [kRows]         float32: the key of x is x times this
//   previous_factor   [kRows]         float32: the factor of the output of the rounds so far, in the forward pass
//   share             [kRows]         float32: the factor of the output of this round, in the forward pass
#pragma once

#include "attn/cuda/stream.h"
#include "attn/cuda/tiles.cuh"
#include "attn/lsh/cuda/params.h"
#include "attn/lsh/definition.h"

namespace attn::cuda {

// The key of x is x · key_scale, which includes 1/√D; `squares` is ‖x‖².
__device__ inline float key_scale(const LshParams& params, float squares) {
  const float dim = float(params.head_dim);
  if (params.trax) return fast_rsqrt(squares + dim * float(kMeanSquareEpsilon));
  return squares == 0 ? 0 : fast_rsqrt(squares * dim);
}

// What a pass needs for a block.
template <class S, Pass kPass>
struct LshNeeds {
  static constexpr int kTiles = kPass == Pass::forward ? 3 : 4;
  static constexpr bool kScores = kPass == Pass::backward;
  static constexpr size_t kSharedBytes =
      kTiles * S::tile_bytes() + (kScores ? S::score_bytes() : 0) + sizeof(int32_t) * 7 * S::kRows;
};

template <class S, Pass kPass>
class LshBlock {
 public:
  using E = typename S::E;
  using Tile = typename S::Tile;

  using Needs = LshNeeds<S, kPass>;

  // The block takes the queries of tile `query_tile` of a chunk in `block_round`; `block_number` is index · chunks + the number
  // of the chunk in the round.
  __device__ LshBlock(const LshParams& all_params, int64_t block_round, int64_t block_number, int64_t query_tile)
      : params(all_params),
        round(block_round),
        index(block_number / all_params.chunks),
        number(block_number % all_params.chunks),
        first_query(int(query_tile) * S::kRows),
        own_penalty(all_params.trax ? float(kOwnPositionPenalty) : 0) {
    wait_for_previous_kernel();
    char* p = shared_memory();
    for (int t = 0; t < Needs::kTiles; ++t, p += S::tile_bytes()) tile[t] = reinterpret_cast<Tile*>(p);
    scores = reinterpret_cast<Tile*>(p);
    if (Needs::kScores) p += S::score_bytes();
    query_positions = reinterpret_cast<int32_t*>(p);
    key_positions = query_positions + S::kRows;
    query_not_finite = key_positions + S::kRows;
    key_not_finite = query_not_finite + S::kRows;
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
  __device__ int64_t by_position(int64_t position) const { return (index * params.rounds + round) * params.length + position; }

  // The positions of a chunk in the order of its round. It may have none.
  struct Chunk {
    const int64_t* order;
    int size;
  };
  __device__ Chunk chunk_of(int64_t of_round, int64_t of_number) const {
    const int64_t first = of_number * params.chunk, rest = params.length - first;
    return {params.order + (index * params.rounds + of_round) * params.length + first,
            int(rest < params.chunk ? rest : params.chunk)};
  }
  __device__ Chunk own_chunk() const { return chunk_of(round, number); }
  // The chunk that the block's chunk looks back at. In the trax profile the first chunk of a round looks back at the last one of
  // the round before, and that of the first round at the last one of all; a single chunk looks back at none.
  __device__ Chunk chunk_before() const {
    if (number > 0) return chunk_of(round, number - 1);
    if (!params.trax || (params.rounds == 1 && params.chunks == 1)) return {nullptr, 0};
    return chunk_of(round > 0 ? round - 1 : params.rounds - 1, params.chunks - 1);
  }
  // The position at a place of a chunk. Returns −1 for places after the chunk's end, and for positions below 0 or of at
  // least `limit`: the order may come from a caller in Python.
  __device__ static int32_t position_at(const Chunk& chunk, int place, int64_t limit) {
    if (place >= chunk.size) return -1;
    const int64_t position = chunk.order[place];
    return position >= 0 && position < limit ? int32_t(position) : -1;
  }

  // Begins to load the rows of x at these positions into a tile, with zeros where a position is −1.
  __device__ void begin_gather(Tile* to, const StridedTensor& x, const int32_t* positions, int dim) const {
    const auto first = reinterpret_cast<uintptr_t>(rows(x));
    const int row_bytes = int(x.row_stride) * int(sizeof(E));
    begin_load_rows<S>(to, dim, [&](int t) {
      return positions[t] >= 0 ? global_pointer<const E>(advance(first, positions[t], row_bytes)) : nullptr;
    });
  }
  // Sets those of the warp's rows to zeros that have an entry that is not finite, and sets their not_finite to 1. Otherwise 0 ·
  // NaN would make rows NaN that do not see them. Calls squares(row, sum of the squares of its entries) for every row.
  template <class Squares>
  __device__ void zero_not_finite(Tile* x, int32_t* not_finite, const Squares& squares) const {
    // Two lanes read a row, in vectors of which no two that lanes read at once are in the same bank.
    constexpr int kVector = 16 / int(sizeof(Tile)), kVectors = S::kDim / kVector;
    const int row = warp() * 16 + lane() / 2, part = lane() % 2;
    const auto vector = [&](int i) {
      const int place = kVectors >= 8 ? i % 4 + 4 * part + i / 4 * 8 : i + part * (kVectors / 2);
      return reinterpret_cast<Vector*>(x + row * S::kStride + place * kVector);
    };
    uint32_t zeros = 0;  // two bfloat16 numbers or a float32 number: the sum of all entries times 0
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors / 2; ++i) {
      const Vector all = *vector(i);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (S::kSixteenBits) {
          zeros = multiply_add_pairs(all.word[w], 0, zeros);
          const float first = first_of_pair<Tile>(all.word[w]), second = second_of_pair<Tile>(all.word[w]);
          sum += first * first;
          sum += second * second;
        } else {
          const float entry = bits_to_float(all.word[w]);
          zeros = float_to_bits(fmaf(entry, 0, bits_to_float(zeros)));
          sum += entry * entry;
        }
      }
    }
    float zero;
    if constexpr (S::kSixteenBits) zero = first_of_pair<Tile>(zeros) + second_of_pair<Tile>(zeros);
    else zero = bits_to_float(zeros);
    zero = sum_over_lanes(zero, 2);
    sum = sum_over_lanes(sum, 2);
    const bool finite = zero == 0;
    if (!finite)
      for (int i = 0; i < kVectors / 2; ++i) *vector(i) = Vector{};
    if (part == 0) {
      if (!finite) not_finite[row] = 1;
      squares(row, finite ? sum : 0);
    }
  }

  __device__ void load_queries(Tile* q) const {
    for (int t = thread(); t < S::kRows; t += S::kThreads) {
      query_positions[t] = position_at(own_chunk(), first_query + t, params.length);
      query_not_finite[t] = 0;
    }
    __syncthreads();
    begin_gather(q, params.qk, query_positions, params.head_dim);
    finish_loads();
    __syncthreads();
    zero_not_finite(q, query_not_finite, [](int, float) {});
  }

  // Loads each tile of keys that the chunk sees into k and its values into v, and calls work(before, first) after each: whether
  // the keys are those of the chunk before, and the place in their chunk of the first one.
  template <class Work>
  __device__ void for_each_key_tile(Tile* k, Tile* v, const Work& work) const {
    for (int i = 0; i < 2; ++i) {
      const Chunk source = i == 0 ? own_chunk() : chunk_before();
      for (int first = 0; first < source.size; first += S::kRows) {
        __syncthreads();
        for (int t = thread(); t < S::kRows; t += S::kThreads) {
          key_positions[t] = position_at(source, first + t, visible_keys);
          key_not_finite[t] = 0;
        }
        __syncthreads();
        begin_gather(k, params.qk, key_positions, params.head_dim);
        begin_gather(v, params.v, key_positions, params.value_dim);
        finish_loads();
        __syncthreads();
        zero_not_finite(k, key_not_finite, [&](int row, float squares) { key_scales[row] = key_scale(params, squares); });
        zero_not_finite(v, key_not_finite, [](int, float) {});
        __syncthreads();
        work(i == 1, first);
      }
    }
  }

  // The two rows of queries of the lane, `half` 0 and 1: the row in the tile, the query's position, and one more than the last
  // position that it sees, as far as the causal mask is concerned.
  __device__ static int query_row(int half) { return warp() * 16 + lane() / 4 + half * 8; }
  struct Queries {
    int32_t position[2];
    uint32_t limit[2];
  };
  __device__ Queries queries() const {
    constexpr uint32_t kAll = 0x80000000;
    Queries lane_queries;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t position = query_positions[query_row(half)];
      lane_queries.position[half] = position;
      lane_queries.limit[half] = params.causal || position < 0 ? uint32_t(position + 1) : kAll;
    }
    return lane_queries;
  }
  // The two keys of the lane in columns 8·t to 8·t + 7 of the scores.
  struct Keys {
    int32_t position[2];
    float scale[2];
  };
  __device__ Keys keys(int t) const {
    struct alignas(8) Two {
      uint32_t x[2];
    };
    const int column = t * 8 + Accumulator::column(0);
    const auto positions = *reinterpret_cast<const Two*>(key_positions + column);
    const auto scales = *reinterpret_cast<const Two*>(key_scales + column);
    return {{int32_t(positions.x[0]), int32_t(positions.x[1])}, {bits_to_float(scales.x[0]), bits_to_float(scales.x[1])}};
  }
  // Whether the query of entry i of an Accumulator sees the key of it. A position of −1 is larger than every limit.
  __device__ static bool sees(const Queries& queries, const Keys& keys, int i) {
    return uint32_t(keys.position[i % 2]) < queries.limit[i / 2];
  }
  // The logit of a score, which is entry i of an Accumulator. In the trax profile a penalty is taken off at the own position.
  __device__ float logit(float score, const Queries& queries, const Keys& keys, int i) const {
    return fmaf(score, keys.scale[i % 2], keys.position[i % 2] == queries.position[i / 2] ? -own_penalty : 0.0f);
  }
  // Whether a key of the current tile is not finite. All lanes of the warp must call it.
  __device__ bool any_key_not_finite() const {
    int any = 0;
#pragma unroll
    for (int t = 0; t < S::kRows; t += kWarp) any |= key_not_finite[t + lane()];
    return __any_sync(kAllLanes, any) != 0;
  }

  const LshParams& params;
  int64_t round;
  int64_t index;         // batch · heads + head
  int64_t number;        // of the chunk in its round
  int first_query;       // the place in the chunk at which the block's queries begin
  float own_penalty;     // what is taken off the logit of a query's own position
  int64_t visible_keys;  // positions from here on are hidden
  // These lie in shared memory; see the top of this file.
  Tile *tile[4], *scores;
  int32_t *query_positions, *key_positions, *query_not_finite, *key_not_finite;
  float *key_scales, *previous_factor, *share;

 private:
  struct alignas(16) Vector {
    uint32_t word[4];
  };
};

}  // namespace attn::cuda
