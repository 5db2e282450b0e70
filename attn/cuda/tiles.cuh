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
  static constexpr int kSteps = kDim / F::kDepth;
  static constexpr int kTiles = kDim / 8, kScoreTiles = kRows / 8;
  // The wider the tiles, the fewer steps of a product can be unrolled without running out of registers.
  static constexpr int kUnroll = kSixteenBits && kDim <= 64 ? 4 : 1;

  __host__ __device__ static constexpr size_t tile_bytes() { return sizeof(Tile) * kRows * kStride; }
  __host__ __device__ static constexpr size_t score_bytes() { return sizeof(Tile) * kRows * kScoreStride; }
};

// The first of the warp's 16 rows.
template <class Tile>
__device__ inline Tile* own_rows(Tile* tile, int stride) {
  return tile + warp() * 16 * stride;
}

// Begins to load a tile with all threads of the block. row(t) is the 16-byte aligned address of the `dim` elements of row t. A
// row whose address is null, and columns from `dim` on, become zeros. Before the tile is read, finish_loads() and a barrier are
// needed.
template <class S, class Row>
__device__ inline void begin_load_rows(typename S::Tile* to, int dim, const Row& row) {
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
    const E* from = row(t);
    const bool valid = from != nullptr && column < dim;
    if constexpr (sizeof(E) == sizeof(Tile)) {
      copy_async(to + t * S::kStride + column, from + column, valid);
    } else {
      Out out{};
      if (valid) {
        const In in = *reinterpret_cast<const In*>(from + column);
#pragma unroll
        for (int e = 0; e < kVector; ++e) out.x[e] = from_float<Tile>(to_float(in.x[e]));
      }
      *reinterpret_cast<Out*>(to + t * S::kStride + column) = out;
    }
  }
}
// Waits until the tiles are loaded that this thread has begun to load.
__device__ inline void finish_loads() {
  end_copy_group();
  wait_for_copies<0>();
}

// Stores the warp's 16 rows of sums: entry x of row t < 16 is stored as f(x, t, column) at the address row(t); a row whose
// address is null is not stored. The sums pass through the warp's own rows of `staging`, whose contents are lost.
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

// sum += the warp's rows of left [kRows, kDim] · right [kRows, kDim]ᵀ
template <class S>
__device__ inline void score_rows(Accumulator (&sum)[S::kScoreTiles], const typename S::Tile* left,
                                  const typename S::Tile* right) {
  using F = typename S::F;
  const auto* own = own_rows(left, S::kStride);
#pragma unroll S::kUnroll
  for (int k = 0; k < S::kSteps; ++k) {
    const auto a = F::load_a_of_rows(own + k * F::kDepth, S::kStride);
#pragma unroll
    for (int t = 0; t < S::kScoreTiles; t += 2) {
      typename F::B b[2];
      F::load_b_of_rows(b, right + t * 8 * S::kStride + k * F::kDepth, S::kStride);
      F::multiply_add(sum[t], a, b[0]), F::multiply_add(sum[t + 1], a, b[1]);
    }
  }
}
// sum += scores · right [kRows, kDim], where the scores are those of the warp's rows with the rows of `right`.
template <class S>
__device__ inline void weigh_rows(Accumulator (&sum)[S::kTiles], const Accumulator (&scores)[S::kScoreTiles],
                                  const typename S::Tile* right) {
  using F = typename S::F;
#pragma unroll
  for (int t = 0; t < S::kScoreTiles; t += 2) {
    typename F::A a[F::kDepthsOfPair];
    const Accumulator pair[2] = {scores[t], scores[t + 1]};
    F::from_accumulators(a, pair);
#pragma unroll
    for (int s = 0; s < F::kDepthsOfPair; ++s)
#pragma unroll
      for (int j = 0; j < S::kTiles; j += 2) {
        typename F::B b[2];
        F::load_b_of_columns(b, right + (t * 8 + s * F::kDepth) * S::kStride + j * 8, S::kStride);
        F::multiply_add(sum[j], a[s], b[0]), F::multiply_add(sum[j + 1], a[s], b[1]);
      }
  }
}
// Stores the warp's rows of scores in the tile `to` [kRows, kRows], rounded as a factor of products is.
template <class S>
__device__ inline void store_scores(const Accumulator (&scores)[S::kScoreTiles], typename S::Tile* to) {
  auto* rows = own_rows(to, S::kScoreStride);
#pragma unroll
  for (int t = 0; t < S::kScoreTiles; t += 2) {
    if constexpr (S::kSixteenBits) {
      store_pairs(scores[t], scores[t + 1], rows + t * 8, S::kScoreStride);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        rows[Accumulator::row(i % 4) * S::kScoreStride + (t + i / 4) * 8 + Accumulator::column(i % 4)] =
            S::F::round_to_tile(scores[t + i / 4].x[i % 4]);
    }
  }
}
// sum += (the warp's 16 columns of scores [kRows, kRows])ᵀ · right [kRows, 8 · kTiles]
template <class S, int kTiles>
__device__ inline void add_transposed_scores(Accumulator (&sum)[kTiles], const typename S::Tile* scores,
                                             const typename S::Tile* right) {
  using F = typename S::F;
#pragma unroll S::kUnroll
  for (int row = 0; row < S::kRows; row += F::kDepth) {
    const auto a = F::load_a_of_columns(scores + row * S::kScoreStride + warp() * 16, S::kScoreStride);
#pragma unroll
    for (int t = 0; t < kTiles; t += 2) {
      typename F::B b[2];
      F::load_b_of_columns(b, right + row * S::kStride + t * 8, S::kStride);
      F::multiply_add(sum[t], a, b[0]), F::multiply_add(sum[t + 1], a, b[1]);
    }
  }
}

}  // namespace attn::cuda
