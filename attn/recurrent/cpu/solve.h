// Solves the triangular system of equations of a chunk of 16 positions, and updates a state by a chunk. Both work in tiles whose
// sums stay in registers. As in attn/cpu/tiles.h, each instruction set compiles these functions once.
#pragma once

#include "attn/cpu/products.h"
#include "attn/cpu/rows.h"

namespace attn::cpu {
namespace {

// The order in which the rows of a system are solved: a row depends on those before it (forwards) or after it (backwards).
enum class SolveOrder { forwards, backwards };

// x_i += Σ_m factors(i, m) · x_m over the rows m that are solved before row i, for kVectors vectors of columns. factors(i, m) is
// factors[m · 16 + i] forwards, and factors[i · 16 + m] backwards. The other rows are left out instead of multiplied by zero,
// because 0 · NaN is NaN.
template <class V, int kVectors, SolveOrder kOrder>
[[gnu::always_inline]] inline void solve_tile(const float* factors, float* x, int64_t stride) {
  constexpr int kRows = 4;  // These are solved together, so that each row m is loaded once for all of them.
  constexpr bool kForwards = kOrder == SolveOrder::forwards;
  const auto factor = [&](int64_t i, int64_t m) __attribute__((always_inline)) {
    return V::all(factors[kForwards ? m * kChunkRows + i : i * kChunkRows + m]);
  };
  for (int64_t block = 0; block < kChunkRows; block += kRows) {
    const int64_t first = kForwards ? block : kChunkRows - kRows - block;
    typename V::F sum[kRows][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) sum[r][c] = V::load(x + (first + r) * stride + c * V::kLanes);
    for (int64_t m = kForwards ? 0 : first + kRows; m < (kForwards ? first : int64_t{kChunkRows}); ++m) {
      typename V::F row[kVectors];
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) row[c] = V::load(x + m * stride + c * V::kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const auto f = factor(first + r, m);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) sum[r][c] = V::fma(f, row[c], sum[r][c]);
      }
    }
#pragma GCC unroll 4
    for (int n = 1; n < kRows; ++n) {
      const int r = kForwards ? n : kRows - 1 - n;
#pragma GCC unroll 4
      for (int b = 0; b < n; ++b) {
        const int m = kForwards ? b : kRows - 1 - b;
        const auto f = factor(first + r, first + m);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) sum[r][c] = V::fma(f, sum[m][c], sum[r][c]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) V::store(x + (first + r) * stride + c * V::kLanes, sum[r][c]);
  }
}

// Solves the system for all columns of x [16][width] in place, see solve_tile().
template <class V, SolveOrder kOrder>
[[gnu::noinline]] void solve_rows(const float* factors, float* x, int64_t width) {
  for_each_column_tile<V>(
      width, [&]<int kVectors>(int64_t c)
                 __attribute__((always_inline)) { solve_tile<V, kVectors, kOrder>(factors, x + c, width); });
}

// `keep` is the decay of a state: one number for all rows, or a pointer to a number for each row. share_of_row() is that of a
// row, and shares_from() is `keep` for the rows from `row` on.
inline float share_of_row(float keep, int64_t) { return keep; }
inline float share_of_row(const float* keep, int64_t row) { return keep[row]; }
inline float shares_from(float keep, int64_t) { return keep; }
inline const float* shares_from(const float* keep, int64_t row) { return keep + row; }

// after[r][c] = keep · before[r][c] + Σ_t a[t · rows + r] · b[t · columns + c] over the 16 positions t, for r < rows and
// c < columns, multiples of 16. `keep` is a number, or points to a number for each row. `before` and `after` may be the same.
template <class V, int kRows, int kVectors, class Keep>
[[gnu::always_inline]] inline void update_tile(const float* a, int64_t rows, const float* b, int64_t columns, Keep keep,
                                               const float* before, float* after) {
  typename V::F sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto kept = V::all(share_of_row(keep, r));
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sum[r][c] = V::mul(kept, V::load(before + r * columns + c * V::kLanes));
  }
  for (int64_t t = 0; t < kChunkRows; ++t) {
    typename V::F x[kVectors];
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) x[c] = V::load(b + t * columns + c * V::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto factor = V::all(a[t * rows + r]);
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) sum[r][c] = V::fma(factor, x[c], sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) V::store(after + r * columns + c * V::kLanes, sum[r][c]);
}

// update_tile() for all rows and columns of a state.
template <class V, class Keep>
[[gnu::noinline]] void update_state(const float* a, int64_t rows, const float* b, int64_t columns, Keep keep, const float* before,
                                    float* after) {
  for_each_column_tile<V>(
      columns, [&]<int kVectors>(int64_t c) __attribute__((always_inline)) {
        for_each_tile_row(
            rows, [&]<int kRows>(int64_t r) __attribute__((always_inline)) {
              update_tile<V, kRows, kVectors>(a + r, rows, b + c, columns, shares_from(keep, r), before + r * columns + c,
                                              after + r * columns + c);
            });
      });
}

}  // namespace
}  // namespace attn::cpu
