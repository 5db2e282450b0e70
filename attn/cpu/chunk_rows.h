// Loads and stores of a chunk's rows, with conversion to float32, padding and prefetching.
#pragma once

#include "attn/cpu/rows.h"
#include "attn/cpu/simd.h"

namespace attn::cpu {
namespace {

// Prefetches a row into the second-level cache; kWrite is 1 for a row that will be written. A chunk of a tensor is about a page,
// and the hardware does not prefetch across pages, so the kernels prefetch two chunks ahead. The address may be outside the
// tensor.
template <int kWrite, class E>
inline void prefetch_row(const E* row, int64_t dim) {
  for (const char *p = reinterpret_cast<const char*>(row), *end = reinterpret_cast<const char*>(row + dim); p < end; p += 64)
    __builtin_prefetch(p, kWrite, 2);
}

// Loads `count` rows, beginning with row `begin`, into to[height][width] in float32, with zeros in columns from `dim` on and in
// rows from `count` on. A vector x of row t from column c on is stored as change(t, c, x), which must leave zeros from `dim` on.
// Prefetches the rows that are `ahead` positions further on.
template <class V, class E, class Change>
inline void load_changed_rows(const Rows& rows, int64_t begin, int64_t count, int64_t dim, float* to, int64_t width,
                              int64_t ahead, int64_t height, const Change& change) {
  const E* from = static_cast<const E*>(rows.data) + begin * rows.stride;
  const int64_t whole = dim / V::kLanes * V::kLanes;
  const auto rest = V::first(dim - whole);
  for (int64_t t = 0; t < height; ++t, from += rows.stride, to += width) {
    int64_t c = 0;
    if (t < count) {
      prefetch_row<0>(from + ahead * rows.stride, dim);
      for (; c < whole; c += V::kLanes) V::store(to + c, change(t, c, V::load(from + c)));
      if (c < dim) V::store(to + c, change(t, c, V::load(from + c, rest))), c += V::kLanes;
    }
    for (; c < width; c += V::kLanes) V::store(to + c, V::zero());
  }
}

// The same, without a change.
template <class V, class E>
[[gnu::noinline]] void load_rows(const Rows& rows, int64_t begin, int64_t count, int64_t dim, float* to, int64_t width,
                                 int64_t ahead, int64_t height = kChunkRows) {
  load_changed_rows<V, E>(
      rows, begin, count, dim, to, width, ahead, height,
      [](int64_t, int64_t, typename V::F x) __attribute__((always_inline)) { return x; });
}

// Stores vectors in `count` rows of a tensor with `dim` columns; what lies outside them is not stored.
template <class V, class E>
struct RowStore {
  E* to;
  int64_t stride, dim, count;

  // Row 0 is the tensor's row `begin`. Prefetches the rows that are `ahead` positions further on, unless `ahead` is 0.
  RowStore(const Rows& rows, int64_t begin, int64_t size, int64_t width, int64_t ahead)
      : to(static_cast<E*>(rows.data) + begin * rows.stride), stride(rows.stride), dim(width), count(size) {
    for (int64_t i = 0; ahead != 0 && i < size; ++i) prefetch_row<1>(to + (i + ahead) * stride, dim);
  }

  inline void operator()(int64_t row, int64_t column, typename V::F x) const {
    if (row >= count) return;
    if (column + V::kLanes <= dim) V::store(to + row * stride + column, x);
    else if (column < dim) V::store(to + row * stride + column, x, V::first(dim - column));
  }

  // Whether products of a whole chunk can be stored in the tensor without a buffer, because they need no conversion and no mask.
  bool takes_whole_chunk() const { return sizeof(E) == sizeof(float) && count == kChunkRows && dim == padded(dim); }
  float* floats() const { return reinterpret_cast<float*>(to); }

  // Stores the first `visible` rows of from[16][width], and zeros in the rows after them.
  void store_rows(const float* from, int64_t width, int64_t visible) const {
    for (int64_t row = 0; row < count; ++row)
      for (int64_t c = 0; c < dim; c += V::kLanes) (*this)(row, c, row < visible ? V::load(from + row * width + c) : V::zero());
  }
};

// to[c] += Σ_t x[t][c] for the kChunkRows rows t and c < width, a multiple of V::kLanes.
template <class V>
[[gnu::noinline]] void add_sum_of_rows(const float* x, int64_t width, float* to) {
  for (int64_t c = 0; c < width; c += V::kLanes) {
    auto even = V::load(to + c), odd = V::zero();
    for (int t = 0; t < kChunkRows; t += 2) {
      even = V::add(even, V::load(x + t * width + c));
      odd = V::add(odd, V::load(x + (t + 1) * width + c));
    }
    V::store(to + c, V::add(even, odd));
  }
}

}  // namespace
}  // namespace attn::cpu
