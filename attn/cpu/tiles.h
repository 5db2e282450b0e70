// Multiplies a chunk of 16 positions by a state, and adds the products of the chunk with itself, in tiles of 6 positions × up to
// 64 columns whose sums stay in registers.
//
// These functions know neither the tensors' element type nor the feature map, and are not inlined, so that an instruction set
// compiles each of them once and not once for every kernel that calls it.
#pragma once

#include "attn/cpu/products.h"
#include "attn/cpu/scores.h"

namespace attn::cpu {
namespace {

// The factors of output[i] = Σ_d left[d][i] · state[d] + Σ_j scores[j][i] · values[j], for the 16 positions i of a chunk.
struct ReadTile {
  const float* left;   // [depth][16]
  const float* state;  // [depth][width]
  int64_t depth, width;
  const float* scores;  // [16][16], or null if the chunk does not see its own positions
  const float* values;  // [16][value_stride], `width` columns
  int64_t value_stride;
  float* partial;        // [16][width]: the sums over the previous parts, for states that are read in parts
  bool resumed = false;  // whether the sums begin with `partial` rather than zero
};

// Where the sums of a ReadTile are stored: the sum of position i and column m at to[i · stride + m], multiplied by factors[i]
// unless `factors` is null.
struct ReadTarget {
  float* to;
  int64_t stride;
  const float* factors = nullptr;  // [16]
};

// Computes the positions i0 … i0 + kRows − 1 and kColumns vectors of columns, beginning with column m. Pairs outside the triangle
// are left out, not multiplied by zero, because 0 · NaN is NaN.
template <class V, int kRows, int kColumns, Triangle kTriangle>
[[gnu::always_inline]] inline void read_tile(const ReadTile& t, const ReadTarget& target, int i0, int64_t m) {
  typename V::F sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c)
      sum[i][c] = t.resumed ? V::load(t.partial + (i0 + i) * t.width + m + c * V::kLanes) : V::zero();
  const auto add_row = [&](const float* row, const float* factors) __attribute__((always_inline)) {
    typename V::F x[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) x[c] = V::load(row + c * V::kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto factor = V::all(factors[i]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sum[i][c] = V::fma(factor, x[c], sum[i][c]);
    }
  };
  const float* state = t.state + m;
  const float* left = t.left + i0;
  for (int64_t d = 0; d < t.depth; ++d) add_row(state + d * t.width, left + d * kChunkRows);
  if (t.scores) {
    const float* values = t.values + m;
    if constexpr (kTriangle == Triangle::lower) {
      for (int j = 0; j < i0; ++j) add_row(values + j * t.value_stride, t.scores + j * kChunkRows + i0);
    } else {
      for (int j = i0 + kRows; j < kChunkRows; ++j) add_row(values + j * t.value_stride, t.scores + j * kChunkRows + i0);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kRows; ++j) {
      typename V::F x[kColumns];
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) x[c] = V::load(values + (i0 + j) * t.value_stride + c * V::kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        if (kTriangle == Triangle::lower ? i < j : i > j) continue;
        const auto factor = V::all(t.scores[(i0 + j) * kChunkRows + i0 + i]);
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c) sum[i][c] = V::fma(factor, x[c], sum[i][c]);
      }
    }
  }
  if (target.factors) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sum[i][c] = V::mul(sum[i][c], V::all(target.factors[i0 + i]));
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) V::store(target.to + (i0 + i) * target.stride + m + c * V::kLanes, sum[i][c]);
}

// Computes all 16 positions and all columns.
template <class V, Triangle kTriangle>
[[gnu::noinline]] void read_all_tiles(const ReadTile& t, const ReadTarget& target) {
  for_each_column_tile<V>(
      t.width, [&]<int kVectors>(int64_t m) __attribute__((always_inline)) {
        for_each_tile_row(
            kChunkRows, [&]<int kRows>(int64_t i)
                            __attribute__((always_inline)) { read_tile<V, kRows, kVectors, kTriangle>(t, target, int(i), m); });
      });
}

// Computes the same as read_all_tiles(). A state larger than the first-level cache is read in parts that fit it, and all tiles
// use a part before the next one is read.
template <class V, Triangle kTriangle>
void read_rows(ReadTile t, const ReadTarget& target) {
  constexpr int64_t kPartRows = 128;
  while (t.depth > 2 * kPartRows) {
    auto part = t;
    part.depth = kPartRows;
    part.scores = nullptr;
    read_all_tiles<V, kTriangle>(part, {t.partial, t.width});
    t.left += kPartRows * kChunkRows;
    t.state += kPartRows * t.width;
    t.depth -= kPartRows;
    t.resumed = true;
  }
  read_all_tiles<V, kTriangle>(t, target);
}

// to[r][c] += Σ_t a[t · a_stride + r] · b[t · b_stride + c] over the 16 positions t of a chunk, for r < rows and c < columns, a
// multiple of 16.
template <class V>
[[gnu::noinline]] void add_products_of_chunk(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
                                             int64_t columns, float* to) {
  product_part<V, true, false>(a, 1, a_stride, b, b_stride, rows, kChunkRows, columns, to, columns);
}

// to[r][c] += Σ_t a(r, t) · b[t · columns + c] over the 16 positions t of a chunk that count, for its 16 rows r and c < columns,
// a multiple of 16. a(r, t) is at a[r · a_row + t · a_depth]; those with t ≤ r (lower) or t ≥ r (upper) count, and the others are
// zero, since a tile of rows leaves out only positions that count for none of them.
template <class V, Triangle kTriangle>
[[gnu::noinline]] void add_triangular_product(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t columns,
                                              float* to) {
  for_each_column_tile<V>(
      columns, [&]<int kVectors>(int64_t c) __attribute__((always_inline)) {
        for_each_tile_row(
            kChunkRows, [&]<int kRows>(int64_t r) __attribute__((always_inline)) {
              constexpr bool kLower = kTriangle == Triangle::lower;
              const int64_t first = kLower ? 0 : r, last = kLower ? r + kRows : int64_t{kChunkRows};
              product_tile<V, kRows, kVectors, true>(a + r * a_row + first * a_depth, a_row, a_depth, b + first * columns + c,
                                                     columns, last - first, to + r * columns + c, columns);
            });
      });
}

}  // namespace
}  // namespace attn::cpu
