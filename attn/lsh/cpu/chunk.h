// A chunk of LSH attention in buffers: its keys and queries, and the softmax of their logits.
#pragma once

#include <cmath>

#include "attn/cpu/products.h"
#include "attn/lsh/cpu/rows.h"
#include "attn/lsh/cpu/scratch.h"

namespace attn::cpu {
namespace {

constexpr float kHidden = -INFINITY;  // stands for the logit of a hidden key

// The key of x is x · key_scale / √D. `squares` is Σ x².
inline float key_scale_of(const LshHeadParams& p, float squares) {
  if (p.trax) return 1 / std::sqrt(squares / float(p.dim) + float(kMeanSquareEpsilon));
  return squares == 0 ? 0 : 1 / std::sqrt(squares);
}
template <class V>
inline float key_scale(const LshHeadParams& p, const float* x) {
  return key_scale_of(p, dot<V>(x, x, padded(p.dim)));
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

  // Whether load_keys() loads the chunk into half chunk % 2 of the buffers and the chunk before into the other one. So whole
  // chunks take turns in the halves, and the chunk before is still there from the call before.
  bool alternates(int64_t chunk) const {
    const int64_t before = chunk_before(p_, chunk);
    return before >= 0 && is_whole(chunk) && is_whole(before);
  }

  // Loads the visible keys and values of a chunk and of the chunk that it looks back to. Returns the number of rows. It is
  // rounded up to a multiple of 4 by rows of zeros at position −1.
  int64_t load_keys(int64_t chunk) {
    const int64_t before = chunk_before(p_, chunk), half = chunk % 2;
    if (alternates(chunk)) {
      if (held_[1 - half] != before) load_half(before, 1 - half);
      load_half(chunk, half);
      any_key_not_finite_ = half_not_finite_[0] || half_not_finite_[1];
      return 2 * p_.chunk;
    }
    held_[0] = held_[1] = in_x_ = -1;
    any_key_not_finite_ = false;
    int64_t row = 0, four[4], count_of_four = 0;
    const int64_t sources[] = {chunk, before};
    for (const int64_t source : sources) {
      if (source < 0) continue;
      const int64_t* positions = positions_of(source);
      for (int64_t i = 0, count = size_of(source); i < count; ++i) {
        if (positions[i] >= p_.visible_keys) continue;
        four[count_of_four++] = positions[i];
        if (count_of_four < 4) continue;
        if (!load_four_keys(four, row)) any_key_not_finite_ = true;
        row += 4;
        count_of_four = 0;
      }
    }
    if (count_of_four == 0) return row;
    for (int64_t i = count_of_four; i < 4; ++i) four[i] = four[0];
    if (!load_four_keys(four, row)) any_key_not_finite_ = true;
    for (int64_t i = row + count_of_four; i < row + 4; ++i) {
      b_.key_positions[i] = -1;
      b_.key_not_finite[i] = 0;
      zero_row<V>(b_.keys + i * b_.dim, b_.dim);
      zero_row<V>(b_.v + i * b_.values, b_.values);
    }
    return row + 4;
  }

  // Loads `count` queries of a chunk, beginning at place `from` of the chunk. The remaining rows become zeros at position −1.
  void load_queries(int64_t chunk, int64_t from, int64_t count) {
    const int64_t* positions = positions_of(chunk) + from;
    for (int64_t i = 0; in_x_ != chunk && i < b_.queries; ++i) {
      if (i < count) {
        b_.query_positions[i] = int32_t(positions[i]);
        b_.query_not_finite[i] = !load_finite_row<V, E>(p_.qk, positions[i], p_.dim, b_.x + i * b_.dim);
      } else {
        b_.query_positions[i] = -1;
        b_.query_not_finite[i] = 0;
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
  // Whether all positions of a chunk are there and visible, and fill rows by four.
  bool is_whole(int64_t chunk) const {
    return p_.chunk % 4 == 0 && size_of(chunk) == p_.chunk && positions_of(chunk)[p_.chunk - 1] < p_.visible_keys;
  }

  // Loads the keys and values at four positions into the rows of the buffers from `row` on. Unless `query` is −1, the rows of qk
  // also become queries, from that one on. Returns whether all entries are finite.
  bool load_four_keys(const int64_t* positions, int64_t row, int64_t query = -1) {
    float *keys = b_.keys + row * b_.dim, *values = b_.v + row * b_.values, *x = query < 0 ? keys : b_.x + query * b_.dim;
    float squares[4], not_finite[4];
    load_four_rows<V, E, true>(p_.qk, positions, p_.dim, x, squares);
    load_four_rows<V, E, false>(p_.v, positions, p_.value_dim, values, not_finite);
    bool all_finite = true;
    for (int64_t r = 0; r < 4; ++r, x += b_.dim, keys += b_.dim, values += b_.values) {
      // The squares of finite entries may exceed the range of float32, so a row with such a sum is checked entry by entry.
      bool x_finite = squares[r] <= kLargestFloat;
      if (!x_finite) {
        x_finite = load_finite_row<V, E>(p_.qk, positions[r], p_.dim, x);
        squares[r] = dot<V>(x, x, b_.dim);
      }
      const bool v_finite = not_finite[r] == 0;
      if (!v_finite) zero_row<V>(values, b_.values);
      const auto scale = V::all(key_scale_of(p_, squares[r]) * root_);
      for (int64_t c = 0; c < b_.dim; c += V::kLanes) V::store(keys + c, V::mul(V::load(x + c), scale));
      b_.key_positions[row + r] = int32_t(positions[r]);
      b_.key_not_finite[row + r] = !x_finite || !v_finite;
      if (query >= 0) {
        b_.query_positions[query + r] = int32_t(positions[r]);
        b_.query_not_finite[query + r] = !x_finite;
      }
      all_finite = all_finite && x_finite && v_finite;
    }
    return all_finite;
  }

  // Loads the keys and values of a whole chunk into a half of the buffers. If the queries of a chunk are processed together, its
  // rows also stay in b_.x, as load_queries() would load them.
  void load_half(int64_t chunk, int64_t half) {
    const int64_t* positions = positions_of(chunk);
    const bool fills_x = p_.chunk == b_.queries;
    half_not_finite_[half] = false;
    for (int64_t i = 0; i < p_.chunk; i += 4)
      if (!load_four_keys(positions + i, half * p_.chunk + i, fills_x ? i : -1)) half_not_finite_[half] = true;
    held_[half] = chunk;
    in_x_ = fills_x ? chunk : -1;
  }

  static constexpr float kLargestFloat = 3.40282347e38f;
  int64_t held_[2] = {-1, -1};  // the whole chunk in each half of the buffers of keys and values, or −1
  bool half_not_finite_[2] = {false, false};
  int64_t in_x_ = -1;  // the chunk whose rows are in b_.x, or −1

  LshChunk(const LshHeadParams& params, ScratchCutter cut)
      : p_(params), b_(params, cut), root_(1 / std::sqrt(float(params.dim))) {}
};

}  // namespace
}  // namespace attn::cpu
