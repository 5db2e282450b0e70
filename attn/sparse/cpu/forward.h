// The forward pass of sparse attention over a part of the visible pairs, written over vectors V and elements E.
//
// A tile of 64 queries meets one tile of keys after the other. The largest score m, the sum l of e^(score − m) and the output
// Σ e^(score − m) v of the keys so far stay in buffers; where m grows, both sums are multiplied by e^(old − new). No more memory
// is needed than these buffers.
#pragma once

#include <cmath>

#include "attn/sparse/cpu/tile.h"

namespace attn::cpu {
namespace {

template <class V, class E>
class SparseForward {
  using F = typename V::F;
  static constexpr float kLowest = -3.4028234e38f;  // where no key was seen yet: finite, so that no difference of scores is NaN

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
      row_ = begin, rows_ = end - begin < kTile ? end - begin : kTile;
      load_queries<V, E>(p_.q, part_, row_, rows_, p_.dim, float(p_.scale), q_, q_transposed_);
      start(resumes);
      Interval ranges[2];
      part_.keys_that_are_seen(row_, row_ + rows_, ranges[0], ranges[1]);
      for (const auto& range : ranges)
        for (int64_t key = range.begin; key < range.end; key += kTile)
          add_keys(key, range.end - key < kTile ? range.end - key : kTile);
      store();
    }
  }

 private:
  int64_t query(int64_t i) const { return part_.query_begin + (row_ + i) * part_.step; }

  // The output so far of query i where parts are joined.
  void load_partial(int64_t i) {
    float* to = sums_ + i * value_width_;
    if (p_.partial_output) {
      const float* from = static_cast<const float*>(p_.partial_output) + query(i) * value_width_;
      for (int64_t m = 0; m < value_width_; m += V::kLanes) V::store(to + m, V::load(from + m));
    } else {
      load_rows<V, E>(p_.output, query(i), 1, p_.value_dim, to, value_width_, 0, 1);
    }
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

  void add_keys(int64_t key, int64_t keys) {
    const TileMask mask(part_, row_, rows_, key, keys);
    const auto k = rows_of_keys<V, E>(p_.k, part_, key, keys, p_.dim, k_);
    const auto v = rows_of_keys<V, E>(p_.v, part_, key, keys, p_.value_dim, v_);
    if (mask.all) return add_columns<false>(mask, k, v, 0, kTile, {0, keys});
    for (int64_t c = 0; c < kTile; c += kGroup<V>) {
      const auto seen = mask.keys_of(c, c + kGroup<V>, keys);
      if (!seen.is_empty()) add_columns<true>(mask, k, v, c, kGroup<V>, seen);
    }
  }

  // Adds the keys `seen` of the tile to the queries begin … begin + count − 1.
  template <bool kMasked>
  void add_columns(const TileMask& mask, const TileRows& k, const TileRows& v, int64_t begin, int64_t count,
                   const Interval& seen) {
    float* scores = scores_ + seen.begin * kTile + begin;
    const auto keys = seen.end - seen.begin;
    product<V, false>(k.data + seen.begin * k.stride, k.stride, 1, q_transposed_ + begin, kTile, keys, p_.dim, count, scores,
                      kTile);
    if constexpr (kMasked)
      for (int64_t j = seen.begin; j < seen.end; ++j)
        if (!mask.sees_all(j, begin, begin + count))
          for (int64_t c = begin; c < begin + count; c += V::kLanes)
            V::store(scores_ + j * kTile + c, keep_visible<V>(mask, j, c, V::load(scores_ + j * kTile + c)));
    bool grew = false;
    float factors[kTile];
    for (int64_t c = 0; c < count; c += kVectors * V::kLanes) grew |= weigh(scores + c, keys, begin + c, factors + c);
    if (grew)
      for (int64_t i = 0; i < count; ++i)
        if (factors[i] != 1) scale_row<V>(sums_ + (begin + i) * value_width_, value_width_, factors[i]);
    product<V, true>(scores, 1, kTile, v.data + seen.begin * v.stride, v.stride, count, keys, value_width_,
                     sums_ + begin * value_width_, value_width_);
  }

  static constexpr int kVectors = 2;

  // Replaces the scores of kVectors vectors of queries by e^(score − m), and adds them to the sums. Writes the factors of what
  // was added before, and returns whether any is not 1.
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
      if (p_.partial_output) {
        float* to = static_cast<float*>(p_.partial_output) + query(i) * value_width_;
        for (int64_t m = 0; m < value_width_; m += V::kLanes) V::store(to + m, V::load(from + m));
      }
      RowStore<V, E> to(p_.output, query(i), 1, p_.value_dim, 0);
      for (int64_t m = 0; m < p_.value_dim; m += V::kLanes) to(0, m, V::load(from + m));
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
