// The forward pass of sparse attention over a part of the visible pairs, written over vectors V and elements E.
//
// A tile of 64 queries is processed with one tile of keys after another. For the keys so far, buffers hold the largest score m,
// the sum of e^(score − m), and the sum of e^(score − m) v. Where m grows, both sums are multiplied by e^(old m − new m).
#pragma once

#include <cmath>

#include "attn/sparse/cpu/tile.h"

namespace attn::cpu {
namespace {

template <class V, class E>
class SparseForward {
  using F = typename V::F;
  // The largest score of a query that has seen no key yet. It is finite, so that no difference of scores is NaN.
  static constexpr float kLowest = -3.4028234e38f;

 public:
  SparseForward(const SparseHeadParams& params, const VisiblePart& part, ScratchCutter cut)
      : p_(params),
        part_(part),
        width_(padded(params.dim)),
        value_width_(padded(params.value_dim)),
        q_(cut.take(kTile * width_)),
        q_transposed_(cut.take(kTile * width_)),
        k_(cut.take(kTile * width_)),
        v_(cut.take(kTile * value_width_)),
        scores_(cut.take(kTile * kTile)),
        sums_(cut.take(kTile * value_width_)),
        largest_(cut.take(kTile)),
        total_(cut.take(kTile)),
        scratch_size_(cut.taken()) {}

  int64_t scratch_size() const { return scratch_size_; }

  void forward(bool resumes, int64_t begin, int64_t end) {
    for (; begin < end; begin += kTile) {
      row_ = begin;
      rows_ = end - begin < kTile ? end - begin : kTile;
      load_queries<V, E>(p_.q, part_, row_, rows_, p_.dim, float(p_.scale), q_, q_transposed_);
      start(resumes);
      Interval ranges[2];
      part_.keys_that_are_seen(row_, row_ + rows_, ranges[0], ranges[1]);
      for_each_block<V, E>(p_, part_, row_, rows_, ranges, k_, v_, [&](const TileBlock& block) { add(block); });
      store();
    }
  }

 private:
  int64_t query(int64_t i) const { return part_.query(row_ + i); }

  Rows partial_output() const { return {p_.partial_output, value_width_}; }

  // Loads the output of query i for the parts so far.
  void load_partial(int64_t i) {
    float* to = sums_ + i * value_width_;
    if (p_.partial_output) load_rows<V, float>(partial_output(), query(i), 1, value_width_, to, value_width_, 0, 1);
    else load_rows<V, E>(p_.output, query(i), 1, p_.value_dim, to, value_width_, 0, 1);
  }

  void start(bool resumes) {
    const auto* const log_sum_exp = static_cast<const float*>(p_.log_sum_exp);
    for (int64_t i = 0; i < kTile; ++i) {
      const float before = resumes && i < rows_ ? log_sum_exp[query(i)] : float(p_.sink);
      const bool has_none = before == -__builtin_inff();
      largest_[i] = has_none ? kLowest : before;
      total_[i] = has_none ? 0 : 1;
      if (resumes && i < rows_) load_partial(i);
      else
        for (int64_t m = 0; m < value_width_; m += V::kLanes) V::store(sums_ + i * value_width_ + m, V::zero());
    }
  }

  void add(const TileBlock& block) {
    store_scores<V>(block, q_transposed_, p_.dim, scores_);
    float* const scores = block.in(scores_);
    const auto begin = block.begin, count = block.count;
    bool grew = false;
    float factors[kTile];
    for (int64_t c = 0; c < count; c += kVectors * V::kLanes) grew |= weigh(scores + c, block.keys(), begin + c, factors + c);
    if (grew)
      for (int64_t i = 0; i < count; ++i)
        if (factors[i] != 1) scale_row<V>(sums_ + (begin + i) * value_width_, value_width_, factors[i]);
    product<V, true>(scores, 1, kTile, block.v_rows(), block.v.stride, count, block.keys(), value_width_,
                     sums_ + begin * value_width_, value_width_);
  }

  static constexpr int kVectors = 2;

  // Replaces the scores of kVectors vectors of queries by e^(score − m), and adds them to their sums. Writes the factors e^(old m
  // − new m) to `factors`, and returns whether any of them is not 1.
  [[gnu::noinline]] bool weigh(float* scores, int64_t keys, int64_t query, float* factors) {
    F before[kVectors], largest[kVectors], total[kVectors];
    for (int c = 0; c < kVectors; ++c) largest[c] = before[c] = V::load(largest_ + query + c * V::kLanes);
    for (int64_t j = 0; j < keys; ++j)
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) largest[c] = V::max(largest[c], V::load(scores + j * kTile + c * V::kLanes));
    for (auto& sum : total) sum = V::zero();
    for (int64_t j = 0; j < keys; ++j)
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) {
        float* p = scores + j * kTile + c * V::kLanes;
        const F weight = V::exp_nonpositive(V::sub(V::load(p), largest[c]));
        V::store(p, weight);
        total[c] = V::add(total[c], weight);
      }
    bool grew = false;
    for (int c = 0; c < kVectors; ++c) {
      const F factor = V::exp_nonpositive(V::sub(before[c], largest[c]));
      V::store(factors + c * V::kLanes, factor);
      V::store(largest_ + query + c * V::kLanes, largest[c]);
      float* to = total_ + query + c * V::kLanes;
      V::store(to, V::fma(V::load(to), factor, total[c]));
    }
    for (int i = 0; i < kVectors * V::kLanes; ++i) grew |= factors[i] != 1;
    return grew;
  }

  void store() {
    auto* const log_sum_exp = static_cast<float*>(p_.log_sum_exp);
    for (int64_t i = 0; i < rows_; ++i) {
      float* from = sums_ + i * value_width_;
      const bool has_none = total_[i] == 0;
      log_sum_exp[query(i)] = has_none ? -__builtin_inff() : largest_[i] + std::log(total_[i]);
      scale_row<V>(from, value_width_, has_none ? 0 : 1 / total_[i]);
      if (p_.partial_output) RowStore<V, float>(partial_output(), query(i), 1, value_width_, 0).store_rows(from, value_width_, 1);
      RowStore<V, E>(p_.output, query(i), 1, p_.value_dim, 0).store_rows(from, value_width_, 1);
    }
  }

  const SparseHeadParams& p_;
  const VisiblePart& part_;
  int64_t width_, value_width_;
  float *q_, *q_transposed_, *k_, *v_, *scores_, *sums_, *largest_, *total_;
  int64_t scratch_size_;
  int64_t row_ = 0, rows_ = 0;
};

}  // namespace
}  // namespace attn::cpu
