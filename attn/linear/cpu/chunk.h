// Linear attention a chunk of 16 positions at a time: scores of a chunk with itself, reads of a state, rows of tensors.
#pragma once

#include "attn/linear/cpu/kernels.h"
#include "attn/cpu/simd.h"

namespace attn::kernels {
namespace {

constexpr int kTokens = 16;  // positions a chunk

// scores[j][i] = Σ_d left[d][i] · right[j][d], d < depth, for 16 i and `kRows` j; and, if kMore, more[i] from one further row.
template <class V, int kRows, bool kMore = false>
inline void score_rows(const float* left, const float* right, int64_t right_stride, int64_t depth, float* scores,
                       const float* further = nullptr, float* more = nullptr) {
  constexpr int kVectors = kTokens / V::kLanes;
  typename V::F sum[kRows + kMore][kVectors];
#pragma GCC unroll 32
  for (int j = 0; j < kRows + kMore; ++j)
#pragma GCC unroll 2
    for (int c = 0; c < kVectors; ++c) sum[j][c] = V::zero();
  for (int64_t d = 0; d < depth; ++d) {
    typename V::F x[kVectors];
#pragma GCC unroll 2
    for (int c = 0; c < kVectors; ++c) x[c] = V::load(left + d * kTokens + c * V::kLanes);
#pragma GCC unroll 32
    for (int j = 0; j < kRows + kMore; ++j) {
      const auto y = V::all(kMore && j == kRows ? further[d] : right[j * right_stride + d]);
#pragma GCC unroll 2
      for (int c = 0; c < kVectors; ++c) sum[j][c] = V::fma(x[c], y, sum[j][c]);
    }
  }
#pragma GCC unroll 32
  for (int j = 0; j < kRows; ++j)
#pragma GCC unroll 2
    for (int c = 0; c < kVectors; ++c) V::store(scores + j * kTokens + c * V::kLanes, sum[j][c]);
  if constexpr (kMore)
    for (int c = 0; c < kVectors; ++c) V::store(more + c * V::kLanes, sum[kRows][c]);
}

// The triangle that row i of a causal chunk sees: columns j ≤ i, or from the other side j ≥ i.
enum class Triangle { lower, upper };

// Scores of a chunk with itself: [16][16], row j for what is seen, column i for who sees. And, if it is there, those of one
// further row: more[i].
template <class V>
inline void scores_of(const float* left, const float* right, int64_t right_stride, int64_t depth, float* scores,
                      const float* further = nullptr, float* more = nullptr) {
  if constexpr (V::kLanes == 16) {
    if (further) score_rows<V, 16, true>(left, right, right_stride, depth, scores, further, more);
    else score_rows<V, 16>(left, right, right_stride, depth, scores);
  } else {
    for (int j = 0; j < kTokens; j += 4)
      score_rows<V, 4>(left, right + j * right_stride, right_stride, depth, scores + j * kTokens);
    if (further) score_rows<V, 1>(left, further, 0, depth, more);
  }
}

// Zeros outside the triangle.
template <class V, Triangle kTriangle>
inline void keep_triangle(float* scores) {
#pragma GCC unroll 16
  for (int j = 0; j < kTokens; ++j)
    for (int c = 0; c < kTokens; c += V::kLanes) {
      float* p = scores + j * kTokens + c;
      const int64_t n = kTriangle == Triangle::lower ? j - c : j - c + 1;
      const int64_t bound = n < 0 ? 0 : n > V::kLanes ? V::kLanes : n;
      V::store(p, V::keep(V::load(p), kTriangle == Triangle::lower ? V::from(bound) : V::first(bound)));
    }
}

// out[i] = Σ_d left[d][i] · x[d] for 16 i.
template <class V>
inline void dot_rows(const float* left, const float* x, int64_t depth, float* out) {
  score_rows<V, 1>(left, x, 0, depth, out);
}

// What a tile of kRows tokens and kColumns vectors of the output is made from.
struct ReadTile {
  const float* left;  // [depth][16]
  const float* state;
  int64_t depth, width;
  const float* scores;  // [16][16], or null when nothing of the own chunk is seen
  const float* values;  // [16][value_stride], `width` columns
  int64_t value_stride;
  float* partial;        // [16][width], for states that are read in parts
  bool resumed = false;  // whether partial holds the sum of the parts before
};

// Σ_d left[d][i] · state[d] + Σ_j scores[j][i] · values[j], for the tokens i0 … i0 + kRows − 1, columns from m on. The
// pairs outside the triangle are left out, not multiplied by zero: what they hold may be NaN.
template <class V, int kRows, int kColumns, Triangle kTriangle, class Store>
inline void read_tile(const ReadTile& t, int i0, int64_t m, const Store& store) {
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
  for (int64_t d = 0; d < t.depth; ++d) add_row(state + d * t.width, left + d * kTokens);
  if (t.scores) {
    const float* values = t.values + m;
    if constexpr (kTriangle == Triangle::lower) {
      for (int j = 0; j < i0; ++j) add_row(values + j * t.value_stride, t.scores + j * kTokens + i0);
    } else {
      for (int j = i0 + kRows; j < kTokens; ++j) add_row(values + j * t.value_stride, t.scores + j * kTokens + i0);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kRows; ++j) {
      typename V::F x[kColumns];
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) x[c] = V::load(values + (i0 + j) * t.value_stride + c * V::kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        if (kTriangle == Triangle::lower ? i < j : i > j) continue;
        const auto factor = V::all(t.scores[(i0 + j) * kTokens + i0 + i]);
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c) sum[i][c] = V::fma(factor, x[c], sum[i][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) store(i0 + i, m + c * V::kLanes, sum[i][c]);
}

// All 16 tokens, all columns. `store(i, m, x)` takes a vector of row i from column m on.
template <class V, Triangle kTriangle, class Store>
inline void read_all_tiles(const ReadTile& t, const Store& store) {
  constexpr int kRows = 4, kColumns = V::kLanes == 16 ? 4 : 2;
  int64_t m = 0;
  for (; m + kColumns * V::kLanes <= t.width; m += kColumns * V::kLanes)
    for (int i = 0; i < kTokens; i += kRows) read_tile<V, kRows, kColumns, kTriangle>(t, i, m, store);
  if constexpr (kColumns == 4) {
    const auto rest = (t.width - m) / V::kLanes;
    for (int i = 0; rest > 0 && i < kTokens; i += kRows) {
      if (rest == 1) read_tile<V, kRows, 1, kTriangle>(t, i, m, store);
      if (rest == 2) read_tile<V, kRows, 2, kTriangle>(t, i, m, store);
      if (rest == 3) read_tile<V, kRows, 3, kTriangle>(t, i, m, store);
    }
  }
}

// A state beyond the first-level cache goes in parts that fit it, each read by all tiles.
template <class V, Triangle kTriangle, class Store>
inline void read_rows(ReadTile t, const Store& store) {
  constexpr int64_t kPart = 128;
  while (t.depth > 2 * kPart) {
    auto part = t;
    part.depth = kPart, part.scores = nullptr;
    read_all_tiles<V, kTriangle>(
        part, [&](int64_t row, int64_t column, typename V::F sum)
                  __attribute__((always_inline)) { V::store(t.partial + row * t.width + column, sum); });
    t.left += kPart * kTokens, t.state += kPart * t.width, t.depth -= kPart;
    t.resumed = true;
  }
  read_all_tiles<V, kTriangle>(t, store);
}

// ------------------------------------------------------------ rows of tensors

// Chunks are read a page at a time, where the hardware's prefetching begins anew: so the kernels fetch two chunks ahead.
// Addresses beyond a tensor are harmless here.
template <int kWrite, class E>
inline void prefetch_row(const E* row, int64_t dim) {
  for (const char *p = reinterpret_cast<const char*>(row), *end = reinterpret_cast<const char*>(row + dim); p < end; p += 64)
    __builtin_prefetch(p, kWrite, 2);
}

// `height` rows [width] in float32, zeros where there is no element and in rows from `count` on; fetches the rows that are
// `ahead` of them.
template <class V, class E>
inline void load_rows(const Rows& rows, int64_t begin, int64_t count, int64_t dim, float* to, int64_t width, int64_t ahead,
                      int64_t height = kTokens) {
  const E* from = static_cast<const E*>(rows.data) + begin * rows.stride;
  const int64_t whole = dim / V::kLanes * V::kLanes;
  const auto rest = V::first(dim - whole);
  for (int64_t t = 0; t < height; ++t, from += rows.stride, to += width) {
    int64_t c = 0;
    if (t < count) {
      prefetch_row<0>(from + ahead * rows.stride, dim);
      for (; c < whole; c += V::kLanes) V::store(to + c, V::load(from + c));
      if (c < dim) V::store(to + c, V::load(from + c, rest)), c += V::kLanes;
    }
    for (; c < width; c += V::kLanes) V::store(to + c, V::zero());
  }
}

// Where a tile's vectors go: rows of a tensor, those from `count` on nowhere.
template <class V, class E>
struct RowStore {
  E* to;
  int64_t stride, dim, count;

  RowStore(const Rows& rows, int64_t begin, int64_t size, int64_t width, int64_t ahead)
      : to(static_cast<E*>(rows.data) + begin * rows.stride), stride(rows.stride), dim(width), count(size) {
    for (int64_t i = 0; ahead != 0 && i < size; ++i) prefetch_row<1>(to + (i + ahead) * stride, dim);
  }

  inline void operator()(int64_t row, int64_t column, typename V::F x) const {
    if (row >= count) return;
    if (column + V::kLanes <= dim) V::store(to + row * stride + column, x);
    else if (column < dim) V::store(to + row * stride + column, x, V::first(dim - column));
  }
};

// to[c] += Σ_t x[t][c]
template <class V>
inline void add_sum_of_rows(const float* x, int64_t width, float* to) {
  for (int64_t c = 0; c < width; c += V::kLanes) {
    auto even = V::load(to + c), odd = V::zero();
    for (int t = 0; t < kTokens; t += 2) {
      even = V::add(even, V::load(x + t * width + c));
      odd = V::add(odd, V::load(x + (t + 1) * width + c));
    }
    V::store(to + c, V::add(even, odd));
  }
}

}  // namespace
}  // namespace attn::kernels
