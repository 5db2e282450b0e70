// Products and other operations on small float32 matrices in buffers, for the vector kernels of every method.
#pragma once

#include "attn/cpu/simd.h"

namespace attn::cpu {
namespace {

// Computes to[r·to_stride + c] = Σ_k a[r·a_row + k·a_depth] · b[k·b_stride + c], or with kAdd adds the sum to it, for k < depth,
// r < kRows and kColumns vectors of columns c. The sums stay in registers.
template <class V, int kRows, int kColumns, bool kAdd>
[[gnu::always_inline]] inline void product_tile(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_stride,
                                                int64_t depth, float* to, int64_t to_stride) {
  typename V::F sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) sum[r][c] = kAdd ? V::load(to + r * to_stride + c * V::kLanes) : V::zero();
  for (int64_t k = 0; k < depth; ++k) {
    typename V::F x[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) x[c] = V::load(b + k * b_stride + c * V::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto factor = V::all(a[r * a_row + k * a_depth]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sum[r][c] = V::fma(factor, x[c], sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) V::store(to + r * to_stride + c * V::kLanes, sum[r][c]);
}

// The tiles of products have this many rows and up to this many vectors of columns. Their sums, one row of `b` and a factor fill
// most of the registers (16 for AVX2, 32 for AVX-512), so that there are many multiply-adds for each load.
constexpr int kTileRows = 6;
template <class V>
constexpr int kTileColumns = V::kLanes == 16 ? 4 : 2;

// Calls tile<kRows>(r) for tiles of kTileRows rows, and for the rest of the rows.
template <class Tile>
[[gnu::always_inline]] inline void for_each_tile_row(int64_t rows, const Tile& tile) {
  static_assert(kTileRows == 6);
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6) tile.template operator()<6>(r);
  if (rows - r >= 4) tile.template operator()<4>(r), r += 4;
  if (rows - r >= 2) tile.template operator()<2>(r), r += 2;
  if (rows - r == 1) tile.template operator()<1>(r);
}

// Calls work<kVectors>(column) for all columns, a multiple of 16, in tiles of up to kTileColumns vectors.
template <class V, class Work>
[[gnu::always_inline]] inline void for_each_column_tile(int64_t columns, const Work& work) {
  constexpr int kColumns = kTileColumns<V>;
  int64_t c = 0;
  for (; c + kColumns * V::kLanes <= columns; c += kColumns * V::kLanes) work.template operator()<kColumns>(c);
  if constexpr (kColumns == 4) {
    const auto rest = (columns - c) / V::kLanes;
    if (rest == 1) work.template operator()<1>(c);
    if (rest == 2) work.template operator()<2>(c);
    if (rest == 3) work.template operator()<3>(c);
  }
}

// The same for r < rows and c < columns, a multiple of 16. With kPrefetch, each tile fetches the rows of `a` of the next one,
// whose numbers must be contiguous.
template <class V, bool kAdd, bool kPrefetch>
[[gnu::always_inline]] inline void product_part(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_stride,
                                                int64_t rows, int64_t depth, int64_t columns, float* to, int64_t to_stride) {
  for_each_column_tile<V>(
      columns, [&]<int kVectors>(int64_t c) __attribute__((always_inline)) {
        for_each_tile_row(
            rows, [&]<int kRows>(int64_t r) __attribute__((always_inline)) {
              if constexpr (kPrefetch)
                for (int64_t next = r + kRows; c == 0 && next < rows && next < r + kRows + kTileRows; ++next)
                  for (int64_t k = 0; k < depth; k += 16) __builtin_prefetch(a + next * a_row + k);
              product_tile<V, kRows, kVectors, kAdd>(a + r * a_row, a_row, a_depth, b + c, b_stride, depth,
                                                     to + r * to_stride + c, to_stride);
            });
      });
}

// Does the same. Every row of tiles reads all of `b`, so a large `b` is read in parts that fit the first-level cache. kPrefetch
// is for an `a` that is read from the memory or a lower cache.
template <class V, bool kAdd, bool kPrefetch = false>
[[gnu::noinline]] void product(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_stride, int64_t rows,
                               int64_t depth, int64_t columns, float* to, int64_t to_stride) {
  constexpr int64_t kPart = 64;  // rows of `b`
  const auto part = depth < kPart ? depth : kPart;
  product_part<V, kAdd, kPrefetch>(a, a_row, a_depth, b, b_stride, rows, part, columns, to, to_stride);
  for (int64_t k = part; k < depth; k += kPart)
    product_part<V, true, kPrefetch>(a + k * a_depth, a_row, a_depth, b + k * b_stride, b_stride, rows,
                                     depth - k < kPart ? depth - k : kPart, columns, to, to_stride);
}

// to[c][r] = from[r][c] for r < rows and c < columns, which are multiples of 16.
template <class V>
[[gnu::noinline]] void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                                 int64_t to_stride) {
  for (int64_t r = 0; r < rows; r += V::kLanes)
    for (int64_t c = 0; c < columns; c += V::kLanes)
      V::transpose(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
}

// x[c] *= factor for c < width, a multiple of V::kLanes.
template <class V>
inline void scale_row(float* x, int64_t width, float factor) {
  for (int64_t c = 0; c < width; c += V::kLanes) V::store(x + c, V::mul(V::load(x + c), V::all(factor)));
}

// to[c] += factor · x[c] for c < width, a multiple of V::kLanes.
template <class V>
inline void add_row(const float* x, int64_t width, float factor, float* to) {
  for (int64_t c = 0; c < width; c += V::kLanes) V::store(to + c, V::fma(V::load(x + c), V::all(factor), V::load(to + c)));
}

}  // namespace
}  // namespace attn::cpu
