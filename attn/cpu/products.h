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

// The same for r < rows, a multiple of 4, and c < columns, a multiple of 16.
template <class V, bool kAdd>
[[gnu::always_inline]] inline void product(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_stride,
                                           int64_t rows, int64_t depth, int64_t columns, float* to, int64_t to_stride) {
  constexpr int kRows = 4, kColumns = V::kLanes == 16 ? 4 : 2;
  const auto tiles = [&]<int kVectors>(int64_t c) __attribute__((always_inline)) {
    for (int64_t r = 0; r < rows; r += kRows)
      product_tile<V, kRows, kVectors, kAdd>(a + r * a_row, a_row, a_depth, b + c, b_stride, depth, to + r * to_stride + c,
                                             to_stride);
  };
  int64_t c = 0;
  for (; c + kColumns * V::kLanes <= columns; c += kColumns * V::kLanes) tiles.template operator()<kColumns>(c);
  if constexpr (kColumns == 4) {
    const auto rest = (columns - c) / V::kLanes;
    if (rest == 1) tiles.template operator()<1>(c);
    if (rest == 2) tiles.template operator()<2>(c);
    if (rest == 3) tiles.template operator()<3>(c);
  }
}

// to[c][r] = from[r][c] for r < rows and c < columns, which are multiples of 16.
template <class V>
inline void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
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
