// The forward pass of LSH attention on the CPU, for the chunks of one round of a head. Up to 64 queries of a chunk meet the keys
// of the chunk and of the chunk before it. Each round is merged with the rounds before it, of which only the output [N,M] and its
// log-sum-exp are stored.
#pragma once

#include "attn/lsh/cpu/chunk.h"

namespace attn::cpu {
namespace {

template <class V, class E>
class LshForward : public LshChunk<V, E> {
  using Base = LshChunk<V, E>;
  using Base::any_key_not_finite_;
  using Base::b_;
  using Base::load_keys;
  using Base::load_queries;
  using Base::p_;
  using Base::size_of;
  using Base::softmax;

 public:
  using Base::Base;

  // Implements LshKernels::forward.
  void forward(int64_t round, int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t chunk = round * p_.chunks + c;
      const int64_t rows = rows_ = load_keys(chunk);
      for (int64_t q = 0, size = size_of(chunk); q < size; q += b_.queries) {
        const int64_t count = size - q < b_.queries ? size - q : b_.queries;
        load_queries(chunk, q, count);
        softmax(rows);
        product<V, false>(b_.weights, 1, b_.queries, b_.v, b_.values, b_.queries, rows, b_.values, b_.out, b_.values);
        for (int64_t i = 0; i < count; ++i) merge(round, i);
      }
    }
  }

 private:
  // Merges row i of b_.out, which is the output of this round before it is normalised, with the rounds so far.
  void merge(int64_t round, int64_t i) {
    const int64_t position = b_.query_positions[i];
    const bool seen = b_.largest[i] > kHidden;
    double log_sum_exp = seen ? double(b_.largest[i]) + double(std::log(b_.sum[i])) : -INFINITY;
    if (sees_not_finite(i, seen)) log_sum_exp = NAN;
    p_.log_sum_exp[round * p_.length + position] = log_sum_exp;
    float* row = b_.out + i * b_.values;
    if (p_.rounds == 1) {
      scale_row<V>(row, b_.values, std::isnan(log_sum_exp) ? NAN : seen ? 1 / b_.sum[i] : 0);
      store_row<V, E>(p_.output, position, p_.value_dim, row);
      return;
    }
    float* partial = static_cast<float*>(p_.partial_output) + position * b_.values;
    float previous = 1, share = std::isnan(log_sum_exp) ? NAN : seen ? 1 / (b_.sum[i] * float(p_.rounds)) : 0;
    if (p_.trax) {
      const auto factors = RoundShares::join(p_.merged + 2 * position, round == 0, log_sum_exp);
      previous = float(factors.previous);
      share = float(factors.share) / (seen ? b_.sum[i] : 1);
    }
    for (int64_t c = 0; c < b_.values; c += V::kLanes) {
      const auto old = round == 0 ? V::zero() : V::mul(V::load(partial + c), V::all(previous));
      V::store(partial + c, V::fma(V::load(row + c), V::all(share), old));
    }
  }

  // Whether query i sees a key or value that is not finite, or is not finite itself and sees any key (`seen`).
  bool sees_not_finite(int64_t i, bool seen) const {
    if (b_.query_not_finite[i] && seen) return true;
    if (!any_key_not_finite_) return false;
    for (int64_t j = 0; j < rows_; ++j)
      if (b_.key_not_finite[j] && (!p_.causal || b_.key_positions[j] <= b_.query_positions[i])) return true;
    return false;
  }

  int64_t rows_ = 0;  // the number of rows that load_keys() returned
};

// Implements LshKernels::store_partial_output.
template <class V, class E>
inline void store_partial_output(const LshHeadParams& p, int64_t begin, int64_t end) {
  const auto width = padded(p.value_dim);
  for (int64_t i = begin; i < end; ++i)
    store_row<V, E>(p.output, i, p.value_dim, static_cast<float*>(p.partial_output) + i * width);
}

}  // namespace
}  // namespace attn::cpu
