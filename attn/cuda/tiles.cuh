// Tiles in shared memory for the kernels that use tensor cores: rows of a tensor (positions × dimension), and scores
// (positions × positions).
#pragma once

#include <type_traits>

#include "attn/cuda/mma.h"

namespace attn::cuda {

// E is the tensors' element type; kDim is the dimension of a row, padded with zeros.
template <class E_, Precision kPrecision_, int kDim_>
struct TileShape {
  using E = E_;
  static constexpr Precision kPrecision = kPrecision_;
  static constexpr int kDim = kDim_;
  // The element type of the tiles. float16 tensors have float32 tiles that are multiplied as TF32. The conversion loses nothing,
  // and the states and scaled gradients of long sequences may be beyond the range of float16.
  static constexpr bool kSixteenBits = kPrecision == Precision::half_precision;
  struct ElementTile {
    using Type = E;
  };
  struct FloatTile {
    using Type = float;
  };
  using Tile = typename std::conditional<kSixteenBits, ElementTile, FloatTile>::type::Type;
  using F = Fragments<Tile, kPrecision>;

  static constexpr int kRows = kDim == 128 && !kSixteenBits ? 32 : 64;  // positions in a tile; each warp owns 16
  static constexpr int kWarps = kRows / 16, kThreads = kWarps * kWarp;
  static constexpr int kPad = 16 / int(sizeof(Tile));  // keeps rows 16-byte aligned and spreads them over the memory banks
  static constexpr int kStride = kDim + kPad, kScoreStride = kRows + kPad;
  static constexpr int kSteps = kDim / F::kDepth, kScoreSteps = kRows / F::kDepth;
  static constexpr int kTiles = kDim / 8, kScoreTiles = kRows / 8;

  __host__ __device__ static constexpr size_t tile_bytes() { return sizeof(Tile) * kRows * kStride; }
  __host__ __device__ static constexpr size_t score_bytes() { return sizeof(Tile) * kRows * kScoreStride; }
};

// The first of the warp's 16 rows.
template <class Tile>
__device__ inline Tile* own_rows(Tile* tile, int stride) {
  return tile + warp() * 16 * stride;
}

// Loads a tile with all threads of the block: entry x of row t becomes f(x, t, column). row(t) is the 16-byte aligned address of
// the row's `dim` elements. A row whose address is null, and columns from `dim` on, become zeros.
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
  for (int round = 0; round < S::kRows * kVectors / S::kThreads; ++round) {
    const int i = round * S::kThreads + thread(), t = i / kVectors, column = i % kVectors * kVector;
    Out out{};
    const E* from = row(t);
    if (from != nullptr && column < dim) {
      const In in = *reinterpret_cast<const In*>(from + column);
#pragma unroll
      for (int e = 0; e < kVector; ++e) out.x[e] = from_float<Tile>(f(to_float(in.x[e]), t, column + e));
    }
    *reinterpret_cast<Out*>(to + t * S::kStride + column) = out;
  }
}

// Stores the warp's 16 rows of sums: entry x of row t < 16 is stored as f(x, t, column) at the address row(t); a row whose
// address is null is not stored. The sums pass through the warp's own rows of `staging`, whose contents are lost; before it, a
// barrier is needed after the warp has read them.
template <class S, class To = typename S::E, class Row, class Function>
__device__ inline void store_rows(const Accumulator (&sum)[S::kTiles], typename S::Tile* staging, int dim, const Row& row,
                                  const Function& f) {
  using Tile = typename S::Tile;
  Tile* rows = own_rows(staging, S::kStride);
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

// sum += the warp's rows of left [kRows, kDim] · right [kRows, kDim]ᵀ
template <class S>
__device__ inline void score_rows(Accumulator (&sum)[S::kScoreTiles], typename S::Tile* left, const typename S::Tile* right) {
  multiply<typename S::F, S::kScoreTiles, S::kSteps>(sum, own_rows(left, S::kStride), S::kStride, 1, right, 1, S::kStride);
}
// Stores the warp's rows of `sum` in the tile `scores`, so that they can be a factor of another product. Entry x is stored as
// f(row of the tile, column, x). Before it, a barrier is needed after the warp has read the scores for an earlier product.
template <class S, class Function>
__device__ inline void store_scores(const Accumulator (&sum)[S::kScoreTiles], typename S::Tile* scores, const Function& f) {
  using Tile = typename S::Tile;
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
// sum += the warp's rows of scores [kRows, kRows] · right [kRows, kDim]
template <class S>
__device__ inline void apply_scores(Accumulator (&sum)[S::kTiles], typename S::Tile* scores, const typename S::Tile* right) {
  multiply<typename S::F, S::kTiles, S::kScoreSteps>(sum, own_rows(scores, S::kScoreStride), S::kScoreStride, 1, right,
                                                     S::kStride, 1);
}
}  // namespace attn::cuda
