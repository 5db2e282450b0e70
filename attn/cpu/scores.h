// Scores of a chunk of 16 positions with itself. One factor is transposed, so that its 16 positions are the lanes of vectors.
#pragma once

#include "attn/cpu/products.h"
#include "attn/cpu/rows.h"

namespace attn::cpu {
namespace {

// scores[j][i] = Σ_d left[d][i] · right[j][d] over d < depth, for j < kRows and kVectors vectors of positions i. With kExtra,
// `extra_right` is one more row of `right`, and its scores are extra_scores[i] = Σ_d left[d][i] · extra_right[d].
template <class V, int kRows, int kVectors, bool kExtra = false>
[[gnu::always_inline]] inline void score_rows(const float* left, const float* right, int64_t right_stride, int64_t depth,
                                              float* scores, const float* extra_right = nullptr, float* extra_scores = nullptr) {
  typename V::F sum[kRows + kExtra][kVectors];
#pragma GCC unroll 32
  for (int j = 0; j < kRows + kExtra; ++j)
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) sum[j][c] = V::zero();
  for (int64_t d = 0; d < depth; ++d) {
    typename V::F x[kVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) x[c] = V::load(left + d * kChunkRows + c * V::kLanes);
#pragma GCC unroll 32
    for (int j = 0; j < kRows + kExtra; ++j) {
      const auto y = V::all(kExtra && j == kRows ? extra_right[d] : right[j * right_stride + d]);
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) sum[j][c] = V::fma(x[c], y, sum[j][c]);
    }
  }
#pragma GCC unroll 32
  for (int j = 0; j < kRows; ++j)
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) V::store(scores + j * kChunkRows + c * V::kLanes, sum[j][c]);
  if constexpr (kExtra)
    for (int c = 0; c < kVectors; ++c) V::store(extra_scores + c * V::kLanes, sum[kRows][c]);
}

// Which scores[j][i] of a causal chunk count: those with j ≤ i (lower), if i is a query and j a key, or those with j ≥ i (upper),
// if i is a key and j a query.
enum class Triangle { lower, upper };

// The scores of so many rows of `right`, scores[j][i] as score_rows() computes them for i < 16. `rows` is a multiple of 16.
template <class V>
[[gnu::noinline]] void scores_of_rows(const float* left, const float* right, int64_t right_stride, int64_t rows, int64_t depth,
                                      float* scores) {
  constexpr int kVectors = kChunkRows / V::kLanes;
  if constexpr (V::kLanes == 16) {
    for (int64_t j = 0; j < rows; j += 16)
      score_rows<V, 16, kVectors>(left, right + j * right_stride, right_stride, depth, scores + j * kChunkRows);
  } else {
    for_each_tile_row(
        rows, [&]<int kRows>(int64_t j) __attribute__((always_inline)) {
          score_rows<V, kRows, kVectors>(left, right + j * right_stride, right_stride, depth, scores + j * kChunkRows);
        });
  }
}

// The scores of a chunk of 16 positions with itself, of which only vectors with scores that count are computed. The positions j
// are taken in groups of as many as a vector has lanes, beginning with group kGroup: the vectors of a group begin or end with the
// one that holds its own positions i.
template <class V, Triangle kTriangle, bool kExtra, int kGroup = 0>
[[gnu::always_inline]] inline void score_groups(const float* left, const float* right, int64_t right_stride, int64_t depth,
                                                float* scores, const float* extra_right, float* extra_scores) {
  constexpr int kAll = kChunkRows / V::kLanes;
  constexpr bool kLower = kTriangle == Triangle::lower;
  // NOLINTNEXTLINE(bugprone-branch-clone): for some groups both triangles have the same vectors.
  constexpr int kFirst = kLower ? kGroup : 0, kVectors = kLower ? kAll - kGroup : kGroup + 1;
  // With AVX2, which has 16 registers, the sums of half a group fit them.
  constexpr int kRows = V::kLanes == 8 && kVectors == 2 ? V::kLanes / 2 : V::kLanes;
  constexpr int kBegin = kGroup * V::kLanes, kEnd = kBegin + V::kLanes;
  score_rows<V, kRows, kVectors, kExtra && kGroup == 0>(left + kFirst * V::kLanes, right + kBegin * right_stride, right_stride,
                                                        depth, scores + kBegin * kChunkRows + kFirst * V::kLanes, extra_right,
                                                        extra_scores);
  if constexpr (kRows < V::kLanes)
    score_rows<V, kRows, kVectors>(left + kFirst * V::kLanes, right + (kBegin + kRows) * right_stride, right_stride, depth,
                                   scores + (kBegin + kRows) * kChunkRows + kFirst * V::kLanes);
  for (int j = kBegin; j < kEnd; ++j)
    for (int c = 0; c < kAll; ++c)
      if (c < kFirst || c >= kFirst + kVectors) V::store(scores + j * kChunkRows + c * V::kLanes, V::zero());
  if constexpr (kGroup + 1 < kAll)
    score_groups<V, kTriangle, kExtra, kGroup + 1>(left, right, right_stride, depth, scores, extra_right, extra_scores);
}

// The scores of a chunk with itself that count, scores[j][i] as score_rows() computes them. Those that do not count are zero or,
// in a vector with some that count, numbers without meaning, which keep_triangle() removes.
template <class V, Triangle kTriangle>
[[gnu::noinline]] void scores_of(const float* left, const float* right, int64_t right_stride, int64_t depth, float* scores) {
  score_groups<V, kTriangle, false>(left, right, right_stride, depth, scores, nullptr, nullptr);
}

// The same of Triangle::lower, and extra_scores as score_rows() computes them from `extra_right`.
template <class V>
[[gnu::noinline]] void scores_of(const float* left, const float* right, int64_t right_stride, int64_t depth, float* scores,
                                 const float* extra_right, float* extra_scores) {
  score_groups<V, Triangle::lower, true>(left, right, right_stride, depth, scores, extra_right, extra_scores);
}

// Sets the scores outside the triangle to zero.
template <class V, Triangle kTriangle>
[[gnu::noinline]] void keep_triangle(float* scores) {
#pragma GCC unroll 16
  for (int j = 0; j < kChunkRows; ++j)
    for (int c = 0; c < kChunkRows; c += V::kLanes) {
      float* p = scores + j * kChunkRows + c;
      const int64_t n = kTriangle == Triangle::lower ? j - c : j - c + 1;
      const int64_t bound = n < 0 ? 0 : n > V::kLanes ? V::kLanes : n;
      V::store(p, V::keep(V::load(p), kTriangle == Triangle::lower ? V::from(bound) : V::first(bound)));
    }
}

// out[i] = Σ_d left[d][i] · x[d] for i < 16. There are several sums for a vector, because an addition waits for the one before.
template <class V>
[[gnu::noinline]] void dot_rows(const float* left, const float* x, int64_t depth, float* out) {
  constexpr int kSums = 4;
  for (int c = 0; c < kChunkRows; c += V::kLanes) {
    typename V::F sum[kSums] = {V::zero(), V::zero(), V::zero(), V::zero()};
    int64_t d = 0;
    for (; d + kSums <= depth; d += kSums)
#pragma GCC unroll 4
      for (int64_t s = 0; s < kSums; ++s) sum[s] = V::fma(V::load(left + (d + s) * kChunkRows + c), V::all(x[d + s]), sum[s]);
    for (; d < depth; ++d) sum[0] = V::fma(V::load(left + d * kChunkRows + c), V::all(x[d]), sum[0]);
    V::store(out + c, V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3])));
  }
}

}  // namespace
}  // namespace attn::cpu
