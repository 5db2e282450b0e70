// A chunk of LSH attention in buffers: its keys and queries, and the softmax of their logits.
#pragma once

#include <cmath>

#include "attn/cpu/products.h"
#include "attn/lsh/cpu/rows.h"
#include "attn/lsh/cpu/scratch.h"

namespace attn::cpu {
namespace {

constexpr float kHidden = -INFINITY;  // stands for the logit of a hidden key

// The key of x is x · key_scale / √D.
template <class V>
inline float key_scale(const LshHeadParams& p, const float* x) {
  const float squares = dot<V>(x, x, padded(p.dim));
  if (p.trax) return 1 / std::sqrt(squares / float(p.dim) + float(kMeanSquareEpsilon));
  return squares == 0 ? 0 : 1 / std::sqrt(squares);
}

// V is the vector type of an instruction set, E the element type of the tensors.
template <class V, class E>
class LshChunk {
 public:
  // `memory` has room for LshScratch::size() numbers.
  LshChunk(const LshHeadParams& params, void* memory) : LshChunk(params, ScratchCutter(memory)) {}

 protected:
  // The number of positions in a chunk. Chunks are counted over all rounds.
  int64_t size_of(int64_t chunk) const {
    const auto rest = p_.length - chunk % p_.chunks * p_.chunk;
    return rest < p_.chunk ? rest : p_.chunk;
  }
  // The positions of a chunk.
  const int64_t* positions_of(int64_t chunk) const {
    return p_.order + chunk / p_.chunks * p_.length + chunk % p_.chunks * p_.chunk;
  }

  // Loads the visible keys and values of a chunk and of the chunk that it looks back to. Returns the number of rows. It is
  // rounded up to a multiple of 4 by rows of zeros at position −1.
  int64_t load_keys(int64_t chunk) {
    any_key_not_finite_ = false;
    int64_t row = 0;
    const int64_t sources[] = {chunk, chunk_before(p_, chunk)};
    for (const int64_t source : sources) {
      if (source < 0) continue;
      const int64_t* positions = positions_of(source);
      const int64_t count = size_of(source);
      for (int64_t i = 0; i < count; ++i) {
        if (positions[i] >= p_.visible_keys) continue;
        b_.key_positions[row] = int32_t(positions[i]);
        float* key = b_.keys + row * b_.dim;
        const bool x_finite = load_finite_row<V, E>(p_.qk, positions[i], p_.dim, key),
                   v_finite = load_finite_row<V, E>(p_.v, positions[i], p_.value_dim, b_.v + row * b_.values);
        scale_row<V>(key, b_.dim, key_scale<V>(p_, key) * root_);
        b_.key_not_finite[row] = !x_finite || !v_finite;
        any_key_not_finite_ = any_key_not_finite_ || b_.key_not_finite[row];
        ++row;
      }
    }
    for (; row % 4 != 0; ++row) {
      b_.key_positions[row] = -1, b_.key_not_finite[row] = 0;
      zero_row<V>(b_.keys + row * b_.dim, b_.dim);
      zero_row<V>(b_.v + row * b_.values, b_.values);
    }
    return row;
  }

  // Loads `count` queries of a chunk, beginning at place `from` of the chunk. The remaining rows become zeros at position −1.
  void load_queries(int64_t chunk, int64_t from, int64_t count) {
    const int64_t* positions = positions_of(chunk) + from;
    for (int64_t i = 0; i < b_.queries; ++i) {
      if (i < count) {
        b_.query_positions[i] = int32_t(positions[i]);
        b_.query_not_finite[i] = !load_finite_row<V, E>(p_.qk, positions[i], p_.dim, b_.x + i * b_.dim);
      } else {
        b_.query_positions[i] = -1, b_.query_not_finite[i] = 0;
        zero_row<V>(b_.x + i * b_.dim, b_.dim);
      }
    }
    transpose<V>(b_.x, b_.dim, b_.queries, b_.dim, b_.x_transposed, b_.queries);
  }

  // Which of the queries in the lanes from c on see key j.
  typename V::Mask sees(int64_t j, int64_t c) const {
    // Without the causal mask all queries do. Lanes without a query have position −1, and their results are not used.
    return V::at_least(b_.query_positions + c, p_.causal ? b_.key_positions[j] : -1);
  }

  // Sets b_.weights[j][i] to exp(logit − b_.largest[i]) for key j and query i, and to zero where the key is hidden. Sets
  // b_.sum[i] to the sum over the keys.
  void softmax(int64_t rows) {
    product<V, false>(b_.keys, b_.dim, 1, b_.x_transposed, b_.queries, rows, p_.dim, b_.queries, b_.weights, b_.queries);
    for (int64_t c = 0; c < b_.queries; c += V::kLanes) {
      auto largest = V::all(kHidden);
      for (int64_t j = 0; j < rows; ++j) {
        float* p = b_.weights + j * b_.queries + c;
        auto logit = V::load(p);
        if (b_.key_positions[j] < 0) {
          logit = V::all(kHidden);
        } else {
          if (p_.trax)
            logit = V::choose(V::equal(b_.query_positions + c, b_.key_positions[j]),
                              V::sub(logit, V::all(float(kOwnPositionPenalty))), logit);
          if (p_.causal) logit = V::choose(sees(j, c), logit, V::all(kHidden));
        }
        V::store(p, logit);
        largest = V::max(largest, logit);
      }
      V::store(b_.largest + c, largest);
      largest = V::max(V::all(-3e38f), largest);  // a query that sees nothing gets zeros, not NaN
      auto sum = V::zero();
      for (int64_t j = 0; j < rows; ++j) {
        float* p = b_.weights + j * b_.queries + c;
        const auto logit = V::load(p);
        const auto weight = V::keep(V::exp_nonpositive(V::sub(logit, largest)), V::greater(logit, V::all(kHidden)));
        V::store(p, weight);
        sum = V::add(sum, weight);
      }
      V::store(b_.sum + c, sum);
    }
  }

  const LshHeadParams& p_;
  LshScratch b_;  // the buffers
  float root_;    // 1/√D
  bool any_key_not_finite_ = false;

 private:
  LshChunk(const LshHeadParams& params, ScratchCutter cut)
      : p_(params), b_(params, cut), root_(1 / std::sqrt(float(params.dim))) {}
};

}  // namespace
}  // namespace attn::cpu
