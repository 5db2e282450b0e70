// FeatureDecays: the decays of a chunk of 16 positions in which each feature of the keys has its own decay.
//
// All formulas of attn/recurrent/cpu/chunk.h hold if e_ij = e^(g_(j+1) + … + g_i) is a vector with a number for each feature. The
// score of a pair is then Σ_d e_ij[d] q_i[d] k_j[d], so decays are factors of rows of q and k instead of factors of scores.
//
// Let G_i be the sum of g from the beginning of the chunk to position i, and M half of the last of these sums. Then
// e_ij = e^(G_i − M) · e^(M − G_j): scores are products of rows of q, multiplied by the first factor, and rows of k, multiplied
// by the second. If for some feature the absolute values of g add up to kLargestSum or more, the factors could overflow, and if
// some g is −∞ or NaN, M would be, too. In such a chunk (moderate() is false) the rows of k are multiplied by the decay of one
// position after another, and scores are computed pair by pair. Nothing is subtracted or divided, so g = −∞ is exact, and a NaN
// reaches no position before its own.
#pragma once

#include "attn/cpu/products.h"
#include "attn/recurrent/cpu/scratch.h"

namespace attn::cpu {
namespace {

template <class V>
class FeatureDecays {
  // Factors are then at most e^40. The largest float32 is about e^88, which leaves room for their products with rows of q and k.
  static constexpr float kLargestSum = 80;

 public:
  explicit FeatureDecays(const RecurrentScratch& buffers) : b_(buffers) {}

  // Whether all decays e_ij of the chunk are e_read_i · e_written_j.
  bool moderate() const { return moderate_; }

  // Sets, from feature_g, the decays e_edge · e_read_i from the beginning of the chunk to position i, e_edge · e_written_i from
  // position i to its end, and e_kept from its beginning to its end. If the chunk is not moderate, feature_g becomes e^g.
  void set() {
    auto large = V::zero();
    for (int64_t c = 0; c < b_.keys; c += V::kLanes) {
      auto sum = V::zero(), size = V::zero();
      for (int64_t at = c; at < kChunkRows * b_.keys; at += b_.keys) {
        const auto g = V::load(b_.feature_g + at);
        sum = V::add(sum, g);
        size = V::add(size, V::max(g, V::sub(V::zero(), g)));
        V::store(b_.e_read + at, sum);
      }
      // A sum that is NaN counts as large, because a comparison with NaN is false.
      large = V::add(large, V::choose(V::greater(V::all(kLargestSum), size), V::zero(), V::all(1)));
    }
    moderate_ = V::sum(large) == 0;
    for (int64_t c = 0; c < b_.keys; c += V::kLanes)
      if (moderate_) set_about_middle(c);
      else set_one_by_one(c);
  }

  // to[i] = x[i] · factors[i], elementwise for the 16 rows.
  void multiply(const float* x, const float* factors, float* to) const {
    for (int64_t at = 0; at < kChunkRows * b_.keys; at += V::kLanes)
      V::store(to + at, V::mul(V::load(x + at), V::load(factors + at)));
  }
  // x[i] *= e_edge, elementwise.
  void multiply_by_edge(float* x) const {
    for (int64_t c = 0; c < b_.keys; c += V::kLanes) {
      const auto edge = V::load(b_.e_edge + c);
      for (int64_t at = c; at < kChunkRows * b_.keys; at += b_.keys) V::store(x + at, V::mul(V::load(x + at), edge));
    }
  }
  // x[i] *= e_edge · e[i], elementwise; e is e_read or e_written.
  void decay(float* x, const float* e) const {
    for (int64_t c = 0; c < b_.keys; c += V::kLanes) {
      const auto edge = V::load(b_.e_edge + c);
      for (int64_t at = c; at < kChunkRows * b_.keys; at += b_.keys)
        V::store(x + at, V::mul(V::load(x + at), V::mul(edge, V::load(e + at))));
    }
  }
  // to[d][i] = left[d][i] · e_edge[d] for transposed rows, [keys][16].
  void multiply_columns_by_edge(const float* left, float* to) const {
    for (int64_t d = 0; d < b_.keys; ++d)
      for (int64_t at = d * kChunkRows; at < (d + 1) * kChunkRows; at += V::kLanes)
        V::store(to + at, V::mul(V::load(left + at), V::all(b_.e_edge[d])));
  }

  // Sets pair by pair the decayed scores: with `keys` pairs_kk, those of k_i and k_j for j < i, and with `queries` pairs_qk,
  // those of q_i and k_j for j ≤ i.
  void score_one_by_one(bool keys, bool queries) const {
    copy(b_.k, b_.moving_k);
    for (int64_t i = 0; i < kChunkRows; ++i) {
      const float *const q = b_.q + i * b_.keys, *const k = b_.k + i * b_.keys, *const e = b_.feature_g + i * b_.keys;
      for (int64_t j = 0; j < i; ++j) {
        float* const moving = b_.moving_k + j * b_.keys;
        auto with_q = V::zero(), with_k = V::zero();
        for (int64_t c = 0; c < b_.keys; c += V::kLanes) {
          const auto x = V::mul(V::load(moving + c), V::load(e + c));
          V::store(moving + c, x);
          if (queries) with_q = V::fma(V::load(q + c), x, with_q);
          if (keys) with_k = V::fma(V::load(k + c), x, with_k);
        }
        if (queries) b_.pairs_qk[j * kChunkRows + i] = V::sum(with_q);
        if (keys) b_.pairs_kk[j * kChunkRows + i] = V::sum(with_k);
      }
      if (queries) b_.pairs_qk[i * kChunkRows + i] = dot<V>(q, k, b_.keys);
    }
  }

  // grad_q[i] += Σ_j grad_qk_ij · e_ij · k_j over the positions j < i, and grad_k[i] the same with grad_kk unless that is null.
  // grad_qk_ij is grad_qk[j][i].
  void read_one_by_one(const float* grad_qk, float* grad_q, const float* grad_kk, float* grad_k) const {
    copy(b_.k, b_.moving_k);
    for (int64_t i = 0; i < kChunkRows; ++i) {
      const float* const e = b_.feature_g + i * b_.keys;
      for (int64_t j = 0; j < i; ++j) {
        float* const moving = b_.moving_k + j * b_.keys;
        for (int64_t c = 0; c < b_.keys; c += V::kLanes) V::store(moving + c, V::mul(V::load(moving + c), V::load(e + c)));
        add_row<V>(moving, b_.keys, grad_qk[j * kChunkRows + i], grad_q + i * b_.keys);
        if (grad_kk) add_row<V>(moving, b_.keys, grad_kk[j * kChunkRows + i], grad_k + i * b_.keys);
      }
    }
  }
  // grad_written[j] = Σ_i grad_qk_ij · e_ij · q_i + Σ_i grad_kk_ij · e_ij · k_i, over the positions i > j.
  void write_one_by_one(const float* grad_qk, const float* grad_kk, float* grad_written) const {
    copy(b_.q, b_.moving_q), copy(b_.k, b_.moving_k);
    for (int64_t j = kChunkRows; j-- > 0;) {
      float* const to = grad_written + j * b_.keys;
      for (int64_t c = 0; c < b_.keys; c += V::kLanes) V::store(to + c, V::zero());
      for (int64_t i = j + 1; i < kChunkRows; ++i) {
        const float* const e = b_.feature_g + (j + 1) * b_.keys;
        float *const q = b_.moving_q + i * b_.keys, *const k = b_.moving_k + i * b_.keys;
        for (int64_t c = 0; c < b_.keys; c += V::kLanes) {
          V::store(q + c, V::mul(V::load(q + c), V::load(e + c)));
          if (grad_kk) V::store(k + c, V::mul(V::load(k + c), V::load(e + c)));
        }
        add_row<V>(q, b_.keys, grad_qk[j * kChunkRows + i], to);
        if (grad_kk) add_row<V>(k, b_.keys, grad_kk[j * kChunkRows + i], to);
      }
    }
  }

  // x for the features from c on, but zero for features whose decay e^g at position i is below the smallest normal float32, which
  // clears the state. In moderate chunks there are none.
  typename V::F zero_if_cleared(int64_t i, int64_t c, typename V::F x) const {
    if (moderate_) return x;
    return V::choose(V::greater(V::all(1.17549435e-38f), V::load(b_.feature_g + i * b_.keys + c)), V::zero(), x);
  }

 private:
  void set_about_middle(int64_t c) {
    const auto middle = V::mul(V::all(0.5f), V::load(b_.e_read + (kChunkRows - 1) * b_.keys + c));
    const auto edge = V::exp(middle);
    V::store(b_.e_edge + c, edge);
    V::store(b_.e_kept + c, V::mul(edge, edge));
    for (int64_t at = c; at < kChunkRows * b_.keys; at += b_.keys) {
      const auto e = V::exp(V::sub(V::load(b_.e_read + at), middle));
      V::store(b_.e_read + at, e);
      V::store(b_.e_written + at, V::div(V::all(1), e));
    }
  }

  void set_one_by_one(int64_t c) {
    auto product = V::all(1);
    for (int64_t at = c; at < kChunkRows * b_.keys; at += b_.keys) {
      const auto e = V::exp(V::load(b_.feature_g + at));
      V::store(b_.feature_g + at, e);
      product = V::mul(product, e);
      V::store(b_.e_read + at, product);
    }
    V::store(b_.e_kept + c, product);
    V::store(b_.e_edge + c, V::all(1));
    product = V::all(1);
    for (int64_t i = kChunkRows; i-- > 0;) {
      V::store(b_.e_written + i * b_.keys + c, product);
      product = V::mul(product, V::load(b_.feature_g + i * b_.keys + c));
    }
  }

  void copy(const float* from, float* to) const {
    for (int64_t at = 0; at < kChunkRows * b_.keys; at += V::kLanes) V::store(to + at, V::load(from + at));
  }

  const RecurrentScratch& b_;
  bool moderate_ = true;
};

}  // namespace
}  // namespace attn::cpu
