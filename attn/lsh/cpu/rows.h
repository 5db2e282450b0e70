// Loads and stores of single rows, with conversion to float32 and padding.
#pragma once

#include "attn/cpu/rows.h"
#include "attn/cpu/simd.h"

namespace attn::cpu {
namespace {

// Loads a row as float32, with zeros up to the padded dim. If an entry is not finite, all entries become zeros. Returns whether
// all entries are finite.
template <class V, class E>
inline bool load_finite_row(const Rows& rows, int64_t position, int64_t dim, float* to) {
  const E* from = static_cast<const E*>(rows.data) + position * rows.stride;
  const int64_t width = padded(dim);
  auto check = V::zero();
  for (int64_t c = 0; c < width; c += V::kLanes) {
    const int64_t rest = dim - c;
    const auto x = rest >= V::kLanes ? V::load(from + c) : rest > 0 ? V::load(from + c, V::first(rest)) : V::zero();
    check = V::fma(x, V::zero(), check);
    V::store(to + c, x);
  }
  if (V::sum(check) == 0) return true;
  for (int64_t c = 0; c < width; c += V::kLanes) V::store(to + c, V::zero());
  return false;
}

// Loads four rows as float32, with zeros up to the padded dim, unchanged. Sets sums[r] to Σ x² of row r or, without kSquares, to
// a number that is 0 only if all entries of the row are finite.
template <class V, class E, bool kSquares>
inline void load_four_rows(const Rows& rows, const int64_t* positions, int64_t dim, float* to, float* sums) {
  const E* from[4];
  for (int r = 0; r < 4; ++r) from[r] = static_cast<const E*>(rows.data) + positions[r] * rows.stride;
  typename V::F sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  const int64_t width = padded(dim);
  for (int64_t c = 0; c < width; c += V::kLanes) {
    const int64_t rest = dim - c;
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const auto x = rest >= V::kLanes ? V::load(from[r] + c) : rest > 0 ? V::load(from[r] + c, V::first(rest)) : V::zero();
      sum[r] = V::fma(x, kSquares ? x : V::zero(), sum[r]);
      V::store(to + r * width + c, x);
    }
  }
  V::store_sums(sums, sum[0], sum[1], sum[2], sum[3], 1);
}

// Stores a row of `dim` numbers, rounded to the element type E.
template <class V, class E>
inline void store_row(const Rows& rows, int64_t position, int64_t dim, const float* from) {
  E* to = static_cast<E*>(rows.data) + position * rows.stride;
  int64_t c = 0;
  for (; c + V::kLanes <= dim; c += V::kLanes) V::store(to + c, V::load(from + c));
  if (c < dim) V::store(to + c, V::load(from + c), V::first(dim - c));
}

// Loads a row as float32, with zeros up to the padded dim. Entries that are not finite are loaded unchanged.
template <class V, class E>
inline void load_row(const Rows& rows, int64_t position, int64_t dim, float* to) {
  const E* from = static_cast<const E*>(rows.data) + position * rows.stride;
  for (int64_t c = 0, width = padded(dim); c < width; c += V::kLanes) {
    const int64_t rest = dim - c;
    V::store(to + c, rest >= V::kLanes ? V::load(from + c) : rest > 0 ? V::load(from + c, V::first(rest)) : V::zero());
  }
}

template <class V>
inline void zero_row(float* x, int64_t width) {
  for (int64_t c = 0; c < width; c += V::kLanes) V::store(x + c, V::zero());
}

}  // namespace
}  // namespace attn::cpu
