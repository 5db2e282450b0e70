// The vector kernel of cached attention. avx512.cpp, avx2.cpp and neon.cpp compile it, each for its own vectors V.
#pragma once

#include "attn/cpu/cached_attention.h"
#include "attn/cpu/kernel_table.h"
#include "attn/cpu/simd.h"

namespace attn::cpu {
namespace {

template <class V>
class CachedAttention {
  using F = typename V::F;
  static constexpr int64_t kAhead = 512;  // how many numbers ahead the keys and values are prefetched

 public:
  static void attend(const CachedAttentionParams& p) {
    const float max = store_scores(p);
    const float factor = 1 / store_weights(p, max);
    int64_t m = 0;
    for (; m + 2 * V::kLanes <= p.value_dim; m += 2 * V::kLanes) add_values<2>(p, m, V::first(V::kLanes), factor);
    for (; m < p.value_dim; m += V::kLanes) add_values<1>(p, m, lanes(p.value_dim - m), factor);
  }

 private:
  static typename V::Mask lanes(int64_t rest) { return V::first(rest < V::kLanes ? rest : int64_t{V::kLanes}); }

  // The keys and values of many heads are far larger than the caches, and the processor itself looks ahead within a page only.
  static void prefetch(const float* from, int64_t count) {
    for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(from + i);
  }

  // Stores q·k_j · scale for every key, and returns the largest of them and of the sink.
  static float store_scores(const CachedAttentionParams& p) {
    int64_t j = 0;
    for (; j + 4 <= p.key_len; j += 4) {
      const float* k = p.k + j * p.head_dim;
      prefetch(k + kAhead, 4 * p.head_dim);
      F sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
      for (int64_t d = 0; d < p.head_dim; d += V::kLanes) {
        const auto mask = lanes(p.head_dim - d);
        const F q = V::load(p.q + d, mask);
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) sum[r] = V::fma(q, V::load(k + r * p.head_dim + d, mask), sum[r]);
      }
      V::store_sums(p.scores + j, sum[0], sum[1], sum[2], sum[3], p.scale);
    }
    for (; j < p.key_len; ++j) {
      F sum = V::zero();
      for (int64_t d = 0; d < p.head_dim; d += V::kLanes) {
        const auto mask = lanes(p.head_dim - d);
        sum = V::fma(V::load(p.q + d, mask), V::load(p.k + j * p.head_dim + d, mask), sum);
      }
      p.scores[j] = V::sum(sum) * p.scale;
    }
    F largest = V::all(-__builtin_inff());
    for (j = 0; j < p.key_len; j += V::kLanes) {
      const auto mask = lanes(p.key_len - j);
      largest = V::max(V::choose(mask, V::load(p.scores + j, mask), largest), largest);
    }
    const float found = V::largest(largest);
    return p.sink > found ? p.sink : found;
  }

  // Replaces every score by e^(score − max), and returns their sum, which has that of the sink as well.
  static float store_weights(const CachedAttentionParams& p, float max) {
    F total = V::zero();
    if (p.sink > -__builtin_inff()) total = V::keep(V::exp_nonpositive(V::all(p.sink - max)), V::first(1));
    for (int64_t j = 0; j < p.key_len; j += V::kLanes) {
      const auto mask = lanes(p.key_len - j);
      const F weights = V::keep(V::exp_nonpositive(V::sub(V::load(p.scores + j, mask), V::all(max))), mask);
      V::store(p.scores + j, weights, mask);
      total = V::add(total, weights);
    }
    return V::sum(total);
  }

  // Writes kColumns vectors of the output, beginning with column m. Four keys at a time, because a sum must wait for the one
  // before it. If kColumns is 1, `mask` selects the columns that exist.
  template <int kColumns>
  static void add_values(const CachedAttentionParams& p, int64_t m, typename V::Mask mask, float factor) {
    F sum[4][kColumns];
    for (auto& row : sum)
      for (auto& x : row) x = V::zero();
    const auto add = [&](F(&to)[kColumns], int64_t j) __attribute__((always_inline)) {
      const auto weight = V::all(p.scores[j]);
      const float* v = p.v + j * p.value_dim + m;
#pragma GCC unroll 2
      for (int c = 0; c < kColumns; ++c)
        to[c] = V::fma(weight, kColumns > 1 ? V::load(v + c * V::kLanes) : V::load(v, mask), to[c]);
    };
    int64_t j = 0;
    for (; j + 4 <= p.key_len; j += 4) {
      if (m == 0) prefetch(p.v + j * p.value_dim + kAhead, 4 * p.value_dim);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) add(sum[r], j + r);
    }
    for (; j < p.key_len; ++j) add(sum[0], j);
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c) {
      const F all = V::mul(V::add(V::add(sum[0][c], sum[1][c]), V::add(sum[2][c], sum[3][c])), V::all(factor));
      if constexpr (kColumns > 1) V::store(p.output + m + c * V::kLanes, all);
      else V::store(p.output + m, all, mask);
    }
  }
};

}  // namespace
}  // namespace attn::cpu
