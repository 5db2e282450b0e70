// LinearShape: how the kernels of linear attention with tensor cores divide a chunk among warps, and how much memory they use.
#pragma once

#include "attn/cuda/tiles.cuh"

namespace attn::cuda {

// S is a TileShape. A chunk has kRows positions. The warps of a block form a grid of kRowGroups × kColumnGroups: a warp computes
// 16 positions × kColumns columns of a result, and owns kStateRows rows × kColumns columns of a state.
template <class S>
struct LinearShape {
  using E = typename S::E;
  using Tile = typename S::Tile;
  using F = typename S::F;
  static constexpr int kDim = S::kDim, kRows = S::kRows;
  static constexpr bool kSixteenBits = S::kSixteenBits;

  static constexpr int kRowGroups = kRows / 16;
  // So many that the part of a state that a warp owns fits its registers.
  static constexpr int kColumnGroups = kDim == 128 && !kSixteenBits ? 4 : 1;
  static constexpr int kWarps = kRowGroups * kColumnGroups, kThreads = kWarps * kWarp;
  static constexpr int kColumns = kDim / kColumnGroups, kColumnTiles = kColumns / 8;
  static constexpr int kStateRows = kDim / kRowGroups < 16 ? 16 : kDim / kRowGroups, kStateTiles = kStateRows / 16;
  // Whether warps of the last row groups own no part of a state, because it has too few rows.
  static constexpr bool kSomeOwnNoState = kRowGroups * 16 > kDim;

  static constexpr int kStride = S::kStride;  // entries from one row of a tile to the next
  static constexpr int kSteps = S::kSteps;    // steps of a product whose depth is a row of a tile

  // Whether rows are copied to the tiles asynchronously and changed in place, for which elements must be as large as the entries
  // of a tile.
  static constexpr bool kAsync = sizeof(E) == sizeof(Tile);
  // With two buffers for each tile, a chunk is copied while the one before it is computed.
  static constexpr int kBuffers = kSixteenBits && kDim <= 64 ? 2 : 1;
  // With two buffers for the state, a warp need not wait for the others to have read the state of a chunk before it writes the
  // next.
  static constexpr int kStateBuffers = kBuffers;

  static constexpr size_t kAddressBytes = 128;  // room for one address of each array

  static constexpr int kStateEntries = kDim * kStride;
  // The vector that belongs to a state, as fragments: 2 parts × 4 places × 2 · kSteps words, with padding against bank conflicts.
  static constexpr int kPartWords = 4 * 2 * kSteps + 4, kVectorWords = 2 * kPartWords;

  static constexpr size_t kTileBytes = sizeof(Tile) * kRows * kStride;
  static constexpr size_t kStateBytes = sizeof(Tile) * kStateEntries + sizeof(uint32_t) * kVectorWords;
};

// So many blocks of a kernel at least must fit a multiprocessor, as far as registers are concerned.
template <class S>
constexpr int kMinBlocks = S::kDim <= 64     ? 3
                           : S::kSixteenBits ? 2
                                             : 1;

}  // namespace attn::cuda
