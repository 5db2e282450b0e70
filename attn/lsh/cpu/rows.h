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
