// Tiles of rows in shared memory, as the tensor cores' kernels use them: positions × dimension, and positions × positions.
#pragma once

#include <type_traits>

#include "attn/cuda/mma.h"

namespace attn::cuda {

// E: elements of the tensors; kDim: of heads and of values, padded with zeros.
template <class E_, Precision kPrecision_, int kDim_>
struct TileShape {
  using E = E_;
  static constexpr Precision kPrecision = kPrecision_;
  static constexpr int kDim = kDim_;
  // What tiles hold. float16 would not hold the states and scaled gradients of long sequences; as TF32 it loses nothing.
  static constexpr bool kSixteenBits = kPrecision == Precision::half_precision;
  struct AsItIs {
    using Type = E;
  };
  struct AsFloat {
    using Type = float;
  };
  using Tile = typename std::conditional<kSixteenBits, AsItIs, AsFloat>::type::Type;
  using F = Fragments<Tile, kPrecision>;

  static constexpr int kTokens = kDim == 128 && !kSixteenBits ? 32 : 64;  // positions; a warp has 16 of them
  static constexpr int kWarps = kTokens / 16, kThreads = kWarps * kWarp;
  static constexpr int kPad = 16 / int(sizeof(Tile));  // rows begin at 16 bytes, and at different banks
  static constexpr int kStride = kDim + kPad, kScoreStride = kTokens + kPad;
  static constexpr int kSteps = kDim / F::kDepth, kScoreSteps = kTokens / F::kDepth;
  static constexpr int kTiles = kDim / 8, kScoreTiles = kTokens / 8;

  __host__ __device__ static constexpr size_t tile_bytes() { return sizeof(Tile) * kTokens * kStride; }
  __host__ __device__ static constexpr size_t score_bytes() { return sizeof(Tile) * kTokens * kScoreStride; }
};

__device__ inline int thread() { return int(threadIdx.x); }
__device__ inline int lane() { return int(threadIdx.x) % kWarp; }
__device__ inline int warp() { return int(threadIdx.x) / kWarp; }

// The first of the warp's 16 rows.
template <class Tile>
__device__ inline Tile* own_rows(Tile* tile, int stride) {
  return tile + warp() * 16 * stride;
}

// Row t of the tile from row(t), `dim` elements that begin at whole 16 bytes, through f(x, t); zeros where row(t) is null and
// behind `dim`.
template <class S, class Row, class Function>
__device__ inline void load_rows(typename S::Tile* to, int dim, const Row& row, const Function& f) {
  using E = typename S::E;
  using Tile = typename S::Tile;
  constexpr int kVector = 16 / int(sizeof(E)), kVectors = S::kDim / kVector;
  struct alignas(16) In {
    E x[kVector];
  };
  struct alignas(16) Out {
    Tile x[kVector];
  };
#pragma unroll
  for (int round = 0; round < S::kTokens * kVectors / S::kThreads; ++round) {
    const int i = round * S::kThreads + thread(), t = i / kVectors, column = i % kVectors * kVector;
    Out out{};
    const E* from = row(t);
    if (from != nullptr && column < dim) {
      const In in = *reinterpret_cast<const In*>(from + column);
#pragma unroll
      for (int e = 0; e < kVector; ++e) out.x[e] = from_float<Tile>(f(to_float(in.x[e]), t));
    }
    *reinterpret_cast<Out*>(to + t * S::kStride + column) = out;
  }
}

// The warp's 16 rows of sums to row(t), t < 16, null for those that go nowhere, through f(x, t, column); by way of its own rows
// of `staging`, which nobody needs any more.
template <class S, class To = typename S::E, class Row, class Function>
__device__ inline void store_rows(const Accumulator (&sum)[S::kTiles], typename S::Tile* staging, int dim, const Row& row,
                                  const Function& f) {
  using Tile = typename S::Tile;
  Tile* rows = own_rows(staging, S::kStride);
  __syncwarp();
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      rows[Accumulator::row(i) * S::kStride + t * 8 + Accumulator::column(i)] = from_float<Tile>(sum[t].x[i]);
  __syncwarp();
  constexpr int kVector = 16 / int(sizeof(To)), kVectors = S::kDim / kVector;
  struct alignas(16) Out {
    To x[kVector];
  };
  for (int i = lane(); i < 16 * kVectors; i += kWarp) {
    const int t = i / kVectors, column = i % kVectors * kVector;
    To* to = row(t);
    if (to == nullptr || column >= dim) continue;
    Out out;
#pragma unroll
    for (int e = 0; e < kVector; ++e) out.x[e] = from_float<To>(f(to_float(rows[t * S::kStride + column + e]), t, column + e));
    *reinterpret_cast<Out*>(to + column) = out;
  }
}

// sum += the warp's rows of left [·, kDim] times right [·, kDim]ᵀ.
template <class S>
__device__ inline void score_rows(Accumulator (&sum)[S::kScoreTiles], typename S::Tile* left, const typename S::Tile* right) {
  multiply<typename S::F, S::kScoreTiles, S::kSteps>(sum, own_rows(left, S::kStride), S::kStride, 1, right, 1, S::kStride);
}
// The warp's rows into `scores` as a factor of products to come: what f(row of the tile, column, x) makes of each.
template <class S, class Function>
__device__ inline void store_scores(const Accumulator (&sum)[S::kScoreTiles], typename S::Tile* scores, const Function& f) {
  using Tile = typename S::Tile;
  __syncwarp();  // the product before may still read
#pragma unroll
  for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = Accumulator::row(i), column = t * 8 + Accumulator::column(i);
      own_rows(scores, S::kScoreStride)[row * S::kScoreStride + column] =
          from_float<Tile>(f(warp() * 16 + row, column, sum[t].x[i]));
    }
  __syncwarp();
}
// sum += the warp's rows of scores · right [kTokens, kDim]
template <class S>
__device__ inline void apply_scores(Accumulator (&sum)[S::kTiles], typename S::Tile* scores, const typename S::Tile* right) {
  multiply<typename S::F, S::kTiles, S::kScoreSteps>(sum, own_rows(scores, S::kScoreStride), S::kScoreStride, 1, right,
                                                     S::kStride, 1);
}
}  // namespace attn::cuda
