// The vector kernels of linear attention; README.md says why they are shaped as they are. Compiled by linear_avx512.cpp and
// linear_avx2.cpp, each for its own vectors V.
#pragma once

#include "attn/kernels/linear_kernels.h"
#include "attn/kernels/simd.h"

namespace attn::kernels {
namespace {

constexpr int kTokens = 16;  // positions a chunk

// ------------------------------------------------------------ three small products on a chunk

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

// Scores of a chunk with itself, zero outside the triangle: [16][16], row j for what is seen, column i for who sees. And, if it
// is there, those of one further row with all: more[i].
template <class V, Triangle kTriangle>
inline void scores_of(const float* left, const float* right, int64_t right_stride, int64_t depth, float* scores,
                      const float* further = nullptr, float* more = nullptr) {
  constexpr bool kWide = V::kLanes == 16;
  if constexpr (kWide) {
    if (further) score_rows<V, 16, true>(left, right, right_stride, depth, scores, further, more);
    else score_rows<V, 16>(left, right, right_stride, depth, scores);
  } else {
    for (int j = 0; j < kTokens; j += 4)
      score_rows<V, 4>(left, right + j * right_stride, right_stride, depth, scores + j * kTokens);
    if (further) score_rows<V, 1>(left, further, 0, depth, more);
  }
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

// state[d][m] += Σ_t left[t][d] · right[t][m], for kRows rows d and kColumns vectors.
template <class V, int kRows, int kColumns>
inline void add_tile(const float* left, int64_t left_stride, const float* right, int64_t right_stride, int64_t width,
                     float* state) {
  typename V::F sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int d = 0; d < kRows; ++d)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) sum[d][c] = V::load(state + d * width + c * V::kLanes);
  for (int t = 0; t < kTokens; ++t) {
    typename V::F x[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) x[c] = V::load(right + t * right_stride + c * V::kLanes);
#pragma GCC unroll 8
    for (int d = 0; d < kRows; ++d) {
      const auto factor = V::all(left[t * left_stride + d]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sum[d][c] = V::fma(factor, x[c], sum[d][c]);
    }
  }
#pragma GCC unroll 8
  for (int d = 0; d < kRows; ++d)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) V::store(state + d * width + c * V::kLanes, sum[d][c]);
}

// state [depth][width] += leftᵀ [16][left_stride] · right [16][right_stride]; depth is padded, left's rows hold zeros there.
template <class V>
inline void add_products(const float* left, int64_t left_stride, int64_t depth, const float* right, int64_t right_stride,
                         int64_t width, float* state) {
  constexpr int kRows = 4, kColumns = V::kLanes == 16 ? 4 : 2;
  int64_t m = 0;
  for (; m + kColumns * V::kLanes <= width; m += kColumns * V::kLanes)
    for (int64_t d = 0; d < depth; d += kRows)
      add_tile<V, kRows, kColumns>(left + d, left_stride, right + m, right_stride, width, state + d * width + m);
  if constexpr (kColumns == 4) {
    const auto rest = (width - m) / V::kLanes;
    for (int64_t d = 0; rest > 0 && d < depth; d += kRows) {
      float* rows = state + d * width + m;
      if (rest == 1) add_tile<V, kRows, 1>(left + d, left_stride, right + m, right_stride, width, rows);
      if (rest == 2) add_tile<V, kRows, 2>(left + d, left_stride, right + m, right_stride, width, rows);
      if (rest == 3) add_tile<V, kRows, 3>(left + d, left_stride, right + m, right_stride, width, rows);
    }
  }
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

// to [width][16] of from [16][width].
template <class V>
inline void transpose_rows(const float* from, int64_t width, float* to) {
  for (int t = 0; t < kTokens; t += V::kLanes)
    for (int64_t c = 0; c < width; c += V::kLanes) V::transpose(from + t * width + c, width, to + c * kTokens + t, kTokens);
}

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

// ------------------------------------------------------------ feature maps

// Maps that go entry by entry: φ(x) and, from x, φ(x) and the gradient of φ, the gradient of x.
template <class V>
struct Elu {
  static constexpr bool kEntrywise = true;
  static typename V::F apply(typename V::F x) {
    const auto below = V::exp(V::min(V::zero(), x));
    return V::choose(V::greater(x, V::zero()), V::add(x, V::all(1)), below);
  }
  static typename V::F gradient(typename V::F, typename V::F phi, typename V::F g) { return V::mul(g, V::min(V::all(1), phi)); }
};
template <class V>
struct Elu01 {
  static constexpr bool kEntrywise = true;
  static typename V::F apply(typename V::F x) {
    const auto below = V::fma(V::all(0.1f), V::exp(V::min(V::zero(), x)), V::all(0.9f));
    return V::choose(V::greater(x, V::zero()), V::add(x, V::all(1)), below);
  }
  static typename V::F gradient(typename V::F x, typename V::F phi, typename V::F g) {
    return V::mul(g, V::choose(V::greater(x, V::zero()), V::all(1), V::sub(phi, V::all(0.9f))));
  }
};
template <class V>
struct Relu {
  static constexpr bool kEntrywise = true;
  static typename V::F apply(typename V::F x) { return V::max(V::zero(), x); }  // NaN stays NaN
  static typename V::F gradient(typename V::F x, typename V::F, typename V::F g) {
    return V::choose(V::greater(x, V::zero()), g, V::zero());
  }
};

// Maps of whole rows, the same two for one row. Rows of x have kPadding zeros and more behind their `dim` entries, those of
// φ at least as many places more than features; what is written there does not matter.
template <class V>
struct Taylor {
  static constexpr bool kEntrywise = false;
  static constexpr float kShortest = 1e-12f;

  static float length_of(const float* x, int64_t dim) {
    const float length = __builtin_sqrtf(dot<V>(x, x, padded(dim)));
    return length < kShortest ? kShortest : length;
  }
  static void apply(const float* x, int64_t dim, float* phi) {
    const auto length = V::all(length_of(x, dim));
    phi[0] = 1;
    for (int64_t c = 0; c < dim; c += V::kLanes) V::store(phi + 1 + c, V::div(V::load(x + c), length));
  }
  static void gradient(const float* x, const float* phi, const float* g, int64_t dim, float* to) {
    const float factor = 1 / length_of(x, dim);
    float along = 0;
    for (int64_t d = 0; d < dim; ++d) along += phi[1 + d] * g[1 + d];
    for (int64_t d = 0; d < dim; ++d) to[d] = (g[1 + d] - phi[1 + d] * along) * factor;
  }
};
template <class V>
struct Polynomial2 {
  static constexpr bool kEntrywise = false;
  static constexpr float kRootHalf = 0.70710678f;

  // x̃ is kept in the features themselves: 1, x̃, then for each a the products with b ≥ a.
  static float scale_of(int64_t dim) { return 1 / __builtin_sqrtf(__builtin_sqrtf(float(dim))); }
  static void apply(const float* x, int64_t dim, float* phi) {
    const auto scale = V::all(scale_of(dim));
    phi[0] = 1;
    for (int64_t c = 0; c < dim; c += V::kLanes) V::store(phi + 1 + c, V::mul(V::load(x + c), scale));
    float* products = phi + 1 + dim;
    for (int64_t a = 0; a < dim; ++a) {
      const auto factor = V::mul(V::all(x[a]), V::mul(scale, scale));
      for (int64_t b = a; b < dim; b += V::kLanes) V::store(products + b - a, V::mul(V::load(x + b), factor));
      products[0] *= kRootHalf;
      products += dim - a;
    }
  }
  static void gradient(const float* x, const float*, const float* g, int64_t dim, float* to) {
    const float scale = scale_of(dim);
    for (int64_t d = 0; d < dim; ++d) to[d] = g[1 + d];
    const float* of_products = g + 1 + dim;
    for (int64_t a = 0; a < dim; ++a) {
      const float at_a = x[a] * scale;
      float sum = of_products[0] * at_a * (2 * kRootHalf);
      auto sums = V::zero();
      int64_t b = a + 1;
      for (; b + V::kLanes <= dim; b += V::kLanes) {
        const auto h = V::load(of_products + b - a);
        sums = V::fma(h, V::load(x + b), sums);
        V::store(to + b, V::fma(h, V::all(at_a), V::load(to + b)));
      }
      for (; b < dim; ++b) {
        sum += of_products[b - a] * x[b] * scale;
        to[b] += of_products[b - a] * at_a;
      }
      to[a] += sum + V::sum(sums) * scale;
      of_products += dim - a;
    }
    for (int64_t d = 0; d < dim; ++d) to[d] *= scale;
  }
};

// Features of `height` rows, zeros beyond them and in rows from `count` on. Maps of rows get theirs in the buffer x.
template <class V, class E, class Map>
inline void apply_map(const Rows& rows, int64_t begin, int64_t count, int64_t dim, int64_t features, int64_t width, int64_t ahead,
                      float* x, int64_t x_width, float* phi, int64_t height = kTokens) {
  if constexpr (!Map::kEntrywise) load_rows<V, E>(rows, begin, count, dim, x, x_width, ahead, height);
  const E* from = static_cast<const E*>(rows.data) + begin * rows.stride;
  const int64_t whole = features / V::kLanes * V::kLanes;
  const auto rest = V::first(features - whole);
  for (int64_t t = 0; t < count; ++t, from += rows.stride, x += x_width, phi += width) {
    int64_t c = whole;
    if constexpr (Map::kEntrywise) {
      prefetch_row<0>(from + ahead * rows.stride, dim);
      for (c = 0; c < whole; c += V::kLanes) V::store(phi + c, Map::apply(V::load(from + c)));
      if (c < features) V::store(phi + c, Map::apply(V::load(from + c, rest)));
    } else {
      Map::apply(x, dim, phi);
    }
    if (c < features) V::store(phi + c, V::keep(V::load(phi + c), rest)), c += V::kLanes;
    for (; c < width; c += V::kLanes) V::store(phi + c, V::zero());
  }
  for (float* end = phi + (height - count) * width; phi < end; phi += V::kLanes) V::store(phi, V::zero());
}

// ------------------------------------------------------------ the kernels

// One allocation cut into the buffers of a chunk.
class Scratch {
 public:
  explicit Scratch(void* memory) : next_(static_cast<float*>(memory)) {}
  float* take(int64_t size) {
    float* result = next_;
    next_ += padded(size);
    return result;
  }

 private:
  float* next_;
};

template <class V, class E, class Map>
class Linear {
 public:
  Linear(const LinearHead& head, void* memory)
      : h_(head), dims_(dims_of(head)), features_(padded(head.feature_count)), values_(padded(head.value_dim)) {
    Scratch scratch(memory);
    const auto wide = features_ > values_ ? features_ : values_;
    x_ = scratch.take(kTokens * dims_);
    y_ = scratch.take(kTokens * dims_);
    phi_ = scratch.take(kTokens * features_ + kPadding);
    kappa_ = scratch.take(kTokens * features_ + kPadding);
    v_ = scratch.take(kTokens * values_);
    g_ = scratch.take(kTokens * values_);
    left_ = scratch.take(kTokens * wide);
    scores_ = scratch.take(kTokens * kTokens);
    of_rows_ = scratch.take(kTokens * wide);
    lanes_ = scratch.take(kTokens);
    delta_ = scratch.take(kTokens);
    row_ = scratch.take(dims_);
    partial_ = scratch.take(kTokens * wide);
  }
  static int64_t scratch_size(const LinearHead& h) {
    const auto f = padded(h.feature_count), m = padded(h.value_dim), wide = f > m ? f : m;
    return kTokens * (2 * dims_of(h) + 2 * f + 2 * m + 3 * wide + kTokens + 2) + 2 * kPadding + dims_of(h);
  }

  template <bool kTransposed>
  void add_keys(int64_t begin, int64_t end, float* state, float* z) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_keys(at, count);
      take_in_keys<kTransposed>(state, z, v_, values_);
    });
  }

  void forward(int64_t begin, int64_t end, float* s, float* z) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_queries(at, count);
      transpose_rows<V>(phi_, features_, left_);
      // Values are used where they lie, if they lie as they would in a buffer.
      const bool in_place =
          sizeof(E) == sizeof(float) && h_.value_dim == values_ && count == kTokens && at + count <= h_.visible_keys;
      load_keys(at, count, !in_place);
      const float* values = in_place ? static_cast<const float*>(h_.v.data) + at * h_.v.stride : v_;
      const int64_t value_stride = in_place ? h_.v.stride : values_;
      scores_of<V, Triangle::lower>(left_, kappa_, features_, h_.feature_count, scores_, z, lanes_);
      for (int c = 0; c < kTokens; c += V::kLanes) {
        auto sum = V::add(V::load(lanes_ + c), V::all(h_.epsilon));
        for (int j = 0; j < kTokens; ++j) sum = V::add(sum, V::load(scores_ + j * kTokens + c));
        V::store(lanes_ + c, sum);
      }
      write_outputs<Triangle::lower>(at, count, {left_, s, h_.feature_count, values_, scores_, values, value_stride, partial_});
      take_in_keys<false>(s, z, values, value_stride);
    });
  }

  void read(int64_t begin, int64_t end, const float* s, const float* z) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_queries(at, count);
      transpose_rows<V>(phi_, features_, left_);
      dot_rows<V>(left_, z, h_.feature_count, lanes_);
      for (int c = 0; c < kTokens; c += V::kLanes) V::store(lanes_ + c, V::add(V::load(lanes_ + c), V::all(h_.epsilon)));
      write_outputs<Triangle::lower>(at, count, {left_, s, h_.feature_count, values_, nullptr, nullptr, 0, partial_});
    });
  }

  void backward_queries(int64_t begin, int64_t end, bool causal, float* t, float* z) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_queries(at, count);
      load_gradients(at, count);
      transpose_rows<V>(g_, values_, left_);
      const auto store = [&](int row, int64_t column, typename V::F sum) __attribute__((always_inline)) {
        V::store(of_rows_ + row * features_ + column, sum);
      };
      if (causal) {
        load_keys(at, count);
        scores_of<V, Triangle::lower>(left_, v_, values_, h_.value_dim, scores_);
        read_rows<V, Triangle::lower>({left_, t, h_.value_dim, features_, scores_, kappa_, features_, partial_}, store);
        add_products<V>(v_, values_, values_, kappa_, features_, features_, t);
      } else {
        read_rows<V, Triangle::lower>({left_, t, h_.value_dim, features_, nullptr, nullptr, 0, partial_}, store);
      }
      float* normalizer_gradient = static_cast<float*>(h_.normalizer_gradient) + at;
      const RowStore<V, E> to(h_.q_gradient, at, count, h_.head_dim, ahead_);
      for (int64_t i = 0; i < count; ++i) {
        const float *x = x_ + i * dims_, *phi = phi_ + i * features_, *kappa = kappa_ + i * features_;
        float* of_phi = of_rows_ + i * features_;
        auto sum = V::zero();
        for (int64_t c = 0; c < features_; c += V::kLanes) {
          sum = V::fma(V::load(phi + c), V::keep(V::load(of_phi + c), V::first(rest_of(h_.feature_count, c))), sum);
          if (causal) V::store(z + c, V::add(V::load(z + c), V::load(kappa + c)));
        }
        const float delta = -V::sum(sum) * lanes_[i];
        normalizer_gradient[i] = delta;
        for (int64_t c = 0; c < features_; c += V::kLanes) {
          const auto g = V::fma(V::all(delta), V::load(z + c), V::load(of_phi + c));
          if constexpr (Map::kEntrywise) to(i, c, Map::gradient(entries(h_.q, at + i, c), V::load(phi + c), g));
          else V::store(of_phi + c, g);
        }
        if constexpr (!Map::kEntrywise) write_row_gradient(to, i, x, phi, of_phi);
      }
    });
  }

  void add_queries(int64_t begin, int64_t end, float* r, float* y) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_queries(at, count);
      load_gradients(at, count);
      take_in_queries(r, y);
    });
  }

  void backward_keys(int64_t begin, int64_t end, bool causal, float* r, float* y) {
    ahead_ = -2 * kTokens;
    const int64_t last = begin + (end - begin - 1) / kTokens * kTokens;
    for (int64_t at = last; at >= begin; at -= kTokens) {
      const int64_t count = end - at < kTokens ? end - at : kTokens;
      load_keys(at, count);
      const int64_t seen = rest_of(h_.visible_keys, at, count);
      if (causal) {
        load_queries(at, count);
        load_gradients(at, count);
      }
      const auto f = h_.feature_count, m = h_.value_dim;
      // The gradient of v.
      transpose_rows<V>(kappa_, features_, left_);
      if (causal) scores_of<V, Triangle::upper>(left_, phi_, features_, f, scores_);
      write_gradient(h_.v_gradient, at, count, seen, m, {left_, r, f, values_, causal ? scores_ : nullptr, g_, values_, partial_},
                     [](int64_t, int64_t, typename V::F x) { return x; });
      // The gradient of k, the normalizer's part of the scores being a column of ones in v and of δ in g′.
      transpose_rows<V>(v_, values_, left_);
      if (causal) score_values_with_delta();
      read_transposed(r, m);
      const ReadTile tile{left_, nullptr, 0, features_, causal ? scores_ : nullptr, phi_, features_, partial_, /*resumed=*/true};
      if constexpr (Map::kEntrywise) {
        write_gradient(
            h_.k_gradient, at, count, seen, h_.head_dim,
            tile, [&](int64_t row, int64_t column, typename V::F x) __attribute__((always_inline)) {
              const auto i = row * features_ + column;
              return Map::gradient(entries(h_.k, at + row, column), V::load(kappa_ + i), V::add(x, V::load(y + column)));
            });
      } else {
        read_rows<V, Triangle::upper>(
            tile, [&](int row, int64_t column, typename V::F sum) __attribute__((always_inline)) {
              V::store(of_rows_ + row * features_ + column, V::add(sum, V::load(y + column)));
            });
        const RowStore<V, E> to(h_.k_gradient, at, count, h_.head_dim, ahead_);
        for (int64_t i = 0; i < count; ++i) {
          if (i < seen) write_row_gradient(to, i, y_ + i * dims_, kappa_ + i * features_, of_rows_ + i * features_);
          else
            for (int64_t c = 0; c < h_.head_dim; c += V::kLanes) to(i, c, V::zero());
        }
      }
      if (causal) take_in_queries(r, y);
    }
  }

  // Each row of S is read and written once, both sums on the way.
  void step(float* s, float* z) {
    load_rows<V, E>(h_.v, 0, 1, h_.value_dim, v_, values_, 0, 1);
    apply_map<V, E, Map>(h_.q, 0, 1, h_.head_dim, h_.feature_count, features_, 0, x_, dims_, phi_, 1);
    apply_map<V, E, Map>(h_.k, 0, 1, h_.head_dim, h_.feature_count, features_, 0, y_, dims_, kappa_, 1);
    auto total = V::zero();
    for (int64_t c = 0; c < h_.feature_count; c += V::kLanes) {
      const auto some = V::first(rest_of(h_.feature_count, c));
      const auto sum = V::add(V::load(z + c, some), V::load(kappa_ + c));
      V::store(z + c, sum, some);
      total = V::fma(V::load(phi_ + c), sum, total);
    }
    const auto factor = V::all(1 / (V::sum(total) + h_.epsilon));
    const RowStore<V, E> to(h_.output, 0, 1, h_.value_dim, 0);
    int64_t m = 0;
    for (; m + 4 * V::kLanes <= h_.value_dim; m += 4 * V::kLanes) step_columns<4>(s, m, V::first(V::kLanes), factor, to);
    for (; m < h_.value_dim; m += V::kLanes) step_columns<1>(s, m, V::first(rest_of(h_.value_dim, m)), factor, to);
  }

 private:
  // Columns m … of S, kColumns vectors of them, `some` lanes of the last.
  template <int kColumns>
  void step_columns(float* s, int64_t m, typename V::Mask some, typename V::F factor, const RowStore<V, E>& to) {
    typename V::F v[kColumns], sum[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) v[c] = V::load(v_ + m + c * V::kLanes), sum[c] = V::zero();
    for (int64_t d = 0; d < h_.feature_count; ++d) {
      const auto kappa = V::all(kappa_[d]), phi = V::all(phi_[d]);
      float* row = s + d * h_.value_dim + m;
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        float* p = row + c * V::kLanes;
        const auto x = V::fma(kappa, v[c], kColumns > 1 ? V::load(p) : V::load(p, some));
        if constexpr (kColumns > 1) V::store(p, x);
        else V::store(p, x, some);
        sum[c] = V::fma(phi, x, sum[c]);
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) to(0, m + c * V::kLanes, V::mul(sum[c], factor));
  }

  // How many of the `most` lanes from c on lie before n.
  static int64_t rest_of(int64_t n, int64_t c, int64_t most = V::kLanes) {
    const auto rest = n - c;
    return rest < 0 ? 0 : rest > most ? most : rest;
  }
  template <class Work>
  static void for_each_chunk(int64_t begin, int64_t end, const Work& work) {
    for (int64_t at = begin; at < end; at += kTokens) work(at, end - at < kTokens ? end - at : int64_t{kTokens});
  }

  // Of x: maps of rows read some more behind the entries.
  static int64_t dims_of(const LinearHead& h) { return padded(h.head_dim) + (Map::kEntrywise ? 0 : kPadding); }

  void write_row_gradient(const RowStore<V, E>& to, int64_t i, const float* x, const float* phi, const float* of_phi) {
    Map::gradient(x, phi, of_phi, h_.head_dim, row_);
    for (int64_t c = 0; c < h_.head_dim; c += V::kLanes) to(i, c, V::load(row_ + c));
  }

  void load_queries(int64_t at, int64_t count) {
    apply_map<V, E, Map>(h_.q, at, count, h_.head_dim, h_.feature_count, features_, ahead_, x_, dims_, phi_);
  }
  // Hidden keys have no features and no values.
  void load_keys(int64_t at, int64_t count, bool with_values = true) {
    const auto seen = rest_of(h_.visible_keys, at, count);
    apply_map<V, E, Map>(h_.k, at, seen, h_.head_dim, h_.feature_count, features_, ahead_, y_, dims_, kappa_);
    if (with_values) return load_rows<V, E>(h_.v, at, seen, h_.value_dim, v_, values_, ahead_);
    const E* next = static_cast<const E*>(h_.v.data) + (at + ahead_) * h_.v.stride;
    for (int64_t i = 0; i < kTokens; ++i) prefetch_row<0>(next + i * h_.v.stride, h_.value_dim);
  }
  // Entries of a tensor's row as they came, for maps that go entry by entry.
  typename V::F entries(const Rows& rows, int64_t row, int64_t column) const {
    const E* from = static_cast<const E*>(rows.data) + row * rows.stride + column;
    const int64_t rest = h_.head_dim - column;
    return rest >= V::kLanes ? V::load(from) : V::load(from, V::first(rest < 0 ? 0 : rest));
  }
  // g′, and 1/normalizer in lanes_.
  void load_gradients(int64_t at, int64_t count) {
    load_rows<V, E>(h_.gradient, at, count, h_.value_dim, g_, values_, ahead_);
    const float* normalizer = static_cast<const float*>(h_.normalizer) + at;
    const float* delta = static_cast<const float*>(h_.normalizer_gradient) + at;
    for (int64_t i = 0; i < kTokens; ++i) {
      lanes_[i] = i < count ? 1 / normalizer[i] : 0;
      delta_[i] = i < count ? delta[i] : 0;
      if (i < count)
        for (int64_t c = 0; c < values_; c += V::kLanes)
          V::store(g_ + i * values_ + c, V::mul(V::load(g_ + i * values_ + c), V::all(lanes_[i])));
    }
  }

  template <bool kTransposed>
  void take_in_keys(float* state, float* z, const float* values, int64_t value_stride) {
    if constexpr (kTransposed) add_products<V>(v_, values_, values_, kappa_, features_, features_, state);
    else add_products<V>(kappa_, features_, features_, values, value_stride, values_, state);
    add_sum_of_rows<V>(kappa_, features_, z);
  }

  void take_in_queries(float* r, float* y) {
    add_products<V>(phi_, features_, features_, g_, values_, values_, r);
    for (int64_t c = 0; c < features_; c += V::kLanes) {
      auto sum = V::load(y + c);
      for (int t = 0; t < kTokens; ++t) sum = V::fma(V::all(delta_[t]), V::load(phi_ + t * features_ + c), sum);
      V::store(y + c, sum);
    }
  }

  // partial_[i][f] = Σ_m left_[m][i] · r[f][m]: a product along the rows of R, so its rows are taken as scores of 16 lanes.
  void read_transposed(const float* r, int64_t m) {
    constexpr int kRows = V::kLanes == 16 ? 16 : 4;
    for (int64_t f = 0; f < features_; f += kRows)
      score_rows<V, kRows>(left_, r + f * values_, values_, m, of_rows_ + f * kTokens);
    for (int64_t f = 0; f < features_; f += V::kLanes)
      for (int t = 0; t < kTokens; t += V::kLanes)
        V::transpose(of_rows_ + f * kTokens + t, kTokens, partial_ + t * features_ + f, features_);
  }

  // Of normalizers in lanes_.
  template <Triangle kTriangle>
  void write_outputs(int64_t at, int64_t count, const ReadTile& tile) {
    float* normalizer = static_cast<float*>(h_.normalizer) + at;
    for (int64_t i = 0; i < count; ++i) normalizer[i] = lanes_[i];
    for (int c = 0; c < kTokens; c += V::kLanes) V::store(lanes_ + c, V::div(V::all(1), V::load(lanes_ + c)));
    const RowStore<V, E> to(h_.output, at, count, h_.value_dim, ahead_);
    read_rows<V, kTriangle>(
        tile, [&](int row, int64_t column, typename V::F sum)
                  __attribute__((always_inline)) { to(row, column, V::mul(sum, V::all(lanes_[row]))); });
  }

  // Scores of v and g′ with δ of the query added: [16][16], row i a query, column j a key.
  void score_values_with_delta() {
    scores_of<V, Triangle::upper>(left_, g_, values_, h_.value_dim, scores_);
    for (int i = 0; i < kTokens; ++i)
      for (int c = 0; c < kTokens; c += V::kLanes) {
        float* p = scores_ + i * kTokens + c;
        const auto with = V::add(V::load(p), V::all(delta_[i]));
        V::store(p, V::keep(with, V::first(rest_of(i + 1, c))));
      }
  }

  // Rows of keys; those from `seen` on are hidden and get zeros.
  template <class Finish>
  void write_gradient(const Rows& rows, int64_t at, int64_t count, int64_t seen, int64_t dim, const ReadTile& tile,
                      const Finish& finish) {
    const RowStore<V, E> to(rows, at, count, dim, ahead_);
    read_rows<V, Triangle::upper>(
        tile, [&](int row, int64_t column, typename V::F sum)
                  __attribute__((always_inline)) { to(row, column, row < seen ? finish(row, column, sum) : V::zero()); });
  }

  LinearHead h_;
  int64_t ahead_ = 2 * kTokens;
  int64_t dims_, features_, values_;  // padded
  float *x_, *y_, *phi_, *kappa_, *v_, *g_, *left_, *scores_, *of_rows_, *lanes_, *delta_, *row_, *partial_;
};

// The table for one type of elements, the feature map chosen in each call.
template <class V, class E>
class LinearTable {
  template <class Work>
  static void with(const LinearHead& head, void* scratch, const Work& work) {
    switch (head.features) {
      case LinearFeatures::elu: return work(Linear<V, E, Elu<V>>(head, scratch));
      case LinearFeatures::elu01: return work(Linear<V, E, Elu01<V>>(head, scratch));
      case LinearFeatures::relu: return work(Linear<V, E, Relu<V>>(head, scratch));
      case LinearFeatures::taylor: return work(Linear<V, E, Taylor<V>>(head, scratch));
      case LinearFeatures::polynomial2: return work(Linear<V, E, Polynomial2<V>>(head, scratch));
    }
  }
  static float* numbers(void* p) { return static_cast<float*>(p); }
  static const float* numbers(const void* p) { return static_cast<const float*>(p); }

 public:
  static constexpr LinearKernels kernels(const char* name) {
    return {
        name,
        [](const LinearHead& head) { return Linear<V, E, Taylor<V>>::scratch_size(head); },  // the most of all
        [](const LinearHead& head, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.template add_keys<false>(begin, end, numbers(s), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, void* t, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.template add_keys<true>(begin, end, numbers(t), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.forward(begin, end, numbers(s), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, const void* s, const void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.read(begin, end, numbers(s), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, bool causal, void* t, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.backward_queries(begin, end, causal, numbers(t), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, void* r, void* y, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.add_queries(begin, end, numbers(r), numbers(y)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, bool causal, void* r, void* y, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.backward_keys(begin, end, causal, numbers(r), numbers(y)); });
        },
        [](const LinearHead& head, void* s, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.step(numbers(s), numbers(z)); });
        },
    };
  }
};

}  // namespace
}  // namespace attn::kernels
