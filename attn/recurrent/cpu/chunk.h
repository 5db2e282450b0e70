// RecurrentChunk: a chunk of 16 positions in buffers, with its decays, its scores and what it adds to the state.
//
// Let e_ij = e^(g_(j+1) + … + g_i), e_i = e^(g_0 + … + g_i), and S₀ and S₁ the states before and after the chunk. With the delta
// rule the u are the solution of u_i = β_i (v_i − e_i S₀ᵀk_i − Σ_(j<i) e_ij (k_i·k_j) u_j), and
//   output_i = scale (e_i S₀ᵀq_i + Σ_(j≤i) e_ij (q_i·k_j) u_j)     S₁ = e_15 S₀ + Σ_j e_15,j k_j u_jᵀ
// (Yang et al., "Gated Delta Networks", 2412.06464). All e are at most 1 if all g are at most 0. Where g_i is −∞ or so low that
// e^g_i is 0, differences of sums of g would be NaN or inexact, so position i begins a new segment: e from one segment to another
// is 0, and the sums of g begin anew. attn/recurrent/cpu/feature_decays.h computes the decays if each feature of the keys has
// one.
#pragma once

#include "attn/cpu/chunk_rows.h"
#include "attn/cpu/products.h"
#include "attn/cpu/scores.h"
#include "attn/cpu/tiles.h"
#include "attn/recurrent/cpu/feature_decays.h"
#include "attn/recurrent/cpu/scratch.h"
#include "attn/recurrent/cpu/solve.h"

namespace attn::cpu {
namespace {

// E is the tensors' element type; kDelta says whether the delta rule computes u, and kFeatures whether each feature of the keys
// has a decay of its own.
template <class V, class E, bool kDelta, bool kFeatures>
class RecurrentChunk {
 public:
  RecurrentChunk(const RecurrentHeadParams& p, void* memory, bool backward)
      : p_(p), cut_(memory), b_(p, backward, cut_), features_(b_) {
    for (int i = 0; i < kChunkRows; ++i) b_.scales[i] = float(p.scale);
  }

 protected:
  static constexpr float kBorder = kSmallestLogarithm32;  // a lower g clears the state

  // Loads `count` positions from `first` on, and sets their decays. Rows after them become zero.
  void load(int64_t first, int64_t count, bool with_queries) {
    load_rows<V, E>(p_.k, first, count, p_.key_dim, b_.k, b_.keys, 2 * kChunkRows);
    if (p_.normalizes) normalize(b_.k, count, b_.inverse_k);
    if constexpr (!kFeatures) transpose<V>(b_.k, b_.keys, kChunkRows, b_.keys, b_.left_k, kChunkRows);
    load_rows<V, E>(p_.v, first, count, p_.value_dim, kDelta ? b_.v : b_.u, b_.values, 2 * kChunkRows);
    if (with_queries) {
      load_rows<V, E>(p_.q, first, count, p_.key_dim, b_.q, b_.keys, 2 * kChunkRows);
      if (p_.normalizes) normalize(b_.q, count, b_.inverse_q);
      if constexpr (!kFeatures) transpose<V>(b_.q, b_.keys, kChunkRows, b_.keys, b_.left_q, kChunkRows);
    }
    load_gates(first, count);
    if constexpr (kFeatures) load_feature_decays(first, count, with_queries);
    else set_decays();
  }

  // Sets u and, with the delta rule, pairs_kk, from the state before the chunk.
  void compute_updates(const float* s) {
    if constexpr (kDelta) {
      if constexpr (!kFeatures) scores_of<V, Triangle::lower>(b_.left_k, b_.k, b_.keys, b_.keys, b_.pairs_kk);
      else if (features_.moderate()) scores_of<V, Triangle::lower>(b_.left_k, b_.written_k, b_.keys, b_.keys, b_.pairs_kk);
      for_each_pair([&](int64_t at, int c) __attribute__((always_inline)) {
        auto pairs = V::load(b_.pairs_kk + at);
        if constexpr (!kFeatures) {
          pairs = V::mul(pairs, V::load(b_.decays + at));
          V::store(b_.pairs_kk + at, pairs);
        }
        V::store(b_.factors + at, V::mul(pairs, V::sub(V::zero(), V::load(b_.beta + c))));
      });
      for (int c = 0; c < kChunkRows; c += V::kLanes) {
        const auto read = V::sub(V::zero(), V::load(b_.beta + c));
        V::store(b_.read_factors + c, kFeatures ? read : V::mul(read, V::load(b_.e + c)));
      }
      scaled_columns(b_.left_k, b_.read_factors, b_.left_read);
      if constexpr (kFeatures) features_.multiply_columns_by_edge(b_.left_read, b_.left_read);
      for (int i = 0; i < kChunkRows; ++i)
        for (int64_t c = 0; c < b_.values; c += V::kLanes)
          V::store(b_.u + i * b_.values + c, V::mul(V::all(b_.beta[i]), V::load(b_.v + i * b_.values + c)));
      read_rows<V, Triangle::lower>({b_.left_read, s, b_.keys, b_.values, nullptr, nullptr, 0, b_.u, /*resumed=*/true},
                                    {b_.u, b_.values});
      solve_rows<V, SolveOrder::forwards>(b_.factors, b_.u, b_.values);
    }
  }

  // Sets pairs_qk. In chunks whose feature decays are not moderate, load() has set it.
  void score_queries() {
    if constexpr (kFeatures) {
      if (features_.moderate()) scores_of<V, Triangle::lower>(b_.left_q, b_.written_k, b_.keys, b_.keys, b_.pairs_qk);
      return;
    }
    scores_of<V, Triangle::lower>(b_.left_q, b_.k, b_.keys, b_.keys, b_.pairs_qk);
    for_each_pair([&](int64_t at, int) __attribute__((always_inline)) {
      V::store(b_.pairs_qk + at, V::mul(V::load(b_.pairs_qk + at), V::load(b_.decays + at)));
    });
  }

  // Computes S₁ from S₀, which may be the same memory. Afterwards the rows of k or, with kFeatures, of written_k are multiplied
  // by the decay from their position to the end of the chunk.
  void update(const float* s0, float* s1) {
    if constexpr (kFeatures) {
      features_.multiply_by_edge(b_.written_k);
      update_state<V, const float*>(b_.written_k, b_.keys, b_.u, b_.values, b_.e_kept, s0, s1);
    } else {
      scale_rows(b_.k, b_.keys, b_.e_rest);
      update_state<V>(b_.k, b_.keys, b_.u, b_.values, kept_, s0, s1);
    }
  }

  // Calls work(index in a matrix [16][16], i) for every vector of numbers [j][i], [j][i+1], … that has some with j ≤ i.
  template <class Work>
  [[gnu::always_inline]] void for_each_pair(const Work& work) const {
    for (int c = 0; c < kChunkRows; c += V::kLanes)
      for (int j = 0; j < c + V::kLanes; ++j) work(int64_t{j} * kChunkRows + c, c);
  }

  // to[d][i] = left[d][i] · factors[i]
  void scaled_columns(const float* left, const float* factors, float* to) const {
    for (int c = 0; c < kChunkRows; c += V::kLanes) {
      const auto f = V::load(factors + c);
      for (int64_t d = 0; d < b_.keys; ++d) V::store(to + d * kChunkRows + c, V::mul(V::load(left + d * kChunkRows + c), f));
    }
  }
  // x[i] *= factors[i] for the 16 rows.
  static void scale_rows(float* x, int64_t width, const float* factors) {
    for (int i = 0; i < kChunkRows; ++i) scale_row<V>(x + i * width, width, factors[i]);
  }

  const RecurrentHeadParams& p_;
  ScratchCutter cut_;
  RecurrentScratch b_;
  FeatureDecays<V> features_;  // used only with kFeatures
  float kept_ = 1;             // e_15, the decay of the state over the whole chunk

 private:
  void normalize(float* rows, int64_t count, float* inverse) const {
    for (int64_t i = 0; i < count; ++i) {
      float* row = rows + i * b_.keys;
      inverse[i] = 1 / __builtin_sqrtf(dot<V>(row, row, b_.keys) + float(kLengthEpsilon));
      scale_row<V>(row, b_.keys, inverse[i]);
    }
  }

  // Positions after `count` get g = 0 and β = 0, so that they do not change the state.
  void load_gates(int64_t first, int64_t count) {
    const auto* g = static_cast<const float*>(p_.g);
    const auto* beta = static_cast<const float*>(p_.beta);
    float sum = 0;
    last_segment_ = 0;
    for (int64_t i = 0; i < kChunkRows; ++i) {
      b_.g[i] = !kFeatures && i < count && g ? g[(first + i) * p_.g_stride] : 0;
      b_.beta[i] = i >= count ? 0.f : beta ? beta[(first + i) * p_.beta_stride] : 1.f;
      if (b_.g[i] < kBorder) {
        ++last_segment_;
        sum = 0;
      } else sum += b_.g[i];
      b_.sums[i] = sum;
      segment_[i] = last_segment_;
    }
  }

  // Also sets the rows of q and k multiplied by their decays. Positions after `count` get g = 0.
  void load_feature_decays(int64_t first, int64_t count, bool with_queries) {
    const Rows rows{const_cast<void*>(p_.g), p_.g_stride};
    load_rows<V, float>(rows, first, count, p_.key_dim, b_.feature_g, b_.keys, 2 * kChunkRows);
    features_.set();
    features_.multiply(b_.k, b_.e_read, b_.read_k);
    features_.multiply(b_.k, b_.e_written, b_.written_k);
    if (kDelta) transpose<V>(b_.read_k, b_.keys, kChunkRows, b_.keys, b_.left_k, kChunkRows);
    if (with_queries) {
      features_.multiply(b_.q, b_.e_read, b_.read_q);
      transpose<V>(b_.read_q, b_.keys, kChunkRows, b_.keys, b_.left_q, kChunkRows);
    }
    if (!features_.moderate() && (kDelta || with_queries)) features_.score_one_by_one(kDelta, with_queries);
  }

  void set_decays() {
    const auto end = V::all(b_.sums[kChunkRows - 1]);
    for (int c = 0; c < kChunkRows; c += V::kLanes) {
      const auto sums = V::load(b_.sums + c);
      V::store(b_.e + c, V::exp(sums));
      V::store(b_.e_rest + c, V::exp(V::sub(end, sums)));
    }
    for_each_pair([&](int64_t at, int c) __attribute__((always_inline)) {
      // For pairs with j > i, which are not used, it may be infinite.
      V::store(b_.decays + at, V::exp(V::sub(V::load(b_.sums + c), V::all(b_.sums[at / kChunkRows]))));
    });
    for (int i = 0; last_segment_ > 0 && i < kChunkRows; ++i) {
      if (segment_[i] > 0) b_.e[i] = 0;
      if (segment_[i] < last_segment_) b_.e_rest[i] = 0;
      for (int j = 0; j < i; ++j)
        if (segment_[j] < segment_[i]) b_.decays[j * kChunkRows + i] = 0;
    }
    kept_ = b_.e[kChunkRows - 1];
  }

  int segment_[kChunkRows] = {}, last_segment_ = 0;
};

}  // namespace
}  // namespace attn::cpu
