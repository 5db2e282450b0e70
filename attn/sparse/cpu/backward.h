// The backward pass of sparse attention over a part of the visible pairs, written over vectors V and elements E.
//
// A tile of 64 queries is processed with one tile of keys after another. With the weights w = e^(score − log-sum-exp), which are
// computed again, the gradient g of the output, and delta of SparseKernels::store_delta():
//   grad_v[j] += Σ_i w[i,j] g[i]              ds[i,j] = w[i,j] (g[i]·v[j] − delta[i])
//   grad_q[i] += scale · Σ_j ds[i,j] k[j]     grad_k[j] += scale · Σ_i ds[i,j] q[i]
// The gradient of the queries of a tile stays in a buffer; gradients of keys and values are added to memory in each tile.
#pragma once

#include "attn/sparse/cpu/tile.h"

namespace attn::cpu {
namespace {

template <class V, class E>
void store_delta(const SparseHeadParams& p, int64_t begin, int64_t end) {
  const auto* const grad_log_sum_exp = static_cast<const float*>(p.grad_log_sum_exp);
  auto* const delta = static_cast<float*>(p.delta);
  for (int64_t i = begin; i < end; ++i) {
    const E *output = static_cast<const E*>(p.output.data) + i * p.output.stride,
            *gradient = static_cast<const E*>(p.grad_output.data) + i * p.grad_output.stride;
    auto sum = V::zero();
    int64_t m = 0;
    for (; m + V::kLanes <= p.value_dim; m += V::kLanes) sum = V::fma(V::load(output + m), V::load(gradient + m), sum);
    if (const auto rest = V::first(p.value_dim - m); m < p.value_dim)
      sum = V::fma(V::load(output + m, rest), V::load(gradient + m, rest), sum);
    delta[i] = V::sum(sum) - (grad_log_sum_exp ? grad_log_sum_exp[i] : 0);
  }
}

template <class V, class E>
class SparseBackward {
  using F = typename V::F;

 public:
  SparseBackward(const SparseHeadParams& params, const VisiblePart& part, ScratchCutter cut)
      : p_(params),
        part_(part),
        width_(padded(params.dim)),
        value_width_(padded(params.value_dim)),
        q_(cut.take(kTile * width_)),
        q_transposed_(cut.take(kTile * width_)),
        grad_output_(cut.take(kTile * value_width_)),
        grad_output_transposed_(cut.take(kTile * value_width_)),
        k_(cut.take(kTile * width_)),
        v_(cut.take(kTile * value_width_)),
        weights_(cut.take(kTile * kTile)),
        grad_scores_(cut.take(kTile * kTile)),
        grad_q_(cut.take(kTile * width_)),
        log_sum_exp_(cut.take(kTile)),
        delta_(cut.take(kTile)),
        gathered_(cut.take(kTile * (width_ > value_width_ ? width_ : value_width_))),
        scratch_size_(cut.taken()) {}

  int64_t scratch_size() const { return scratch_size_; }

  void backward(int64_t begin, int64_t end) {
    for (; begin < end; begin += kTile) {
      row_ = begin;
      rows_ = end - begin < kTile ? end - begin : kTile;
      Interval ranges[2];
      part_.keys_that_are_seen(row_, row_ + rows_, ranges[0], ranges[1]);
      if (ranges[0].is_empty() && ranges[1].is_empty()) continue;
      load_queries<V, E>(p_.q, part_, row_, rows_, p_.dim, float(p_.scale), q_, q_transposed_);
      load_queries<V, E>(p_.grad_output, part_, row_, rows_, p_.value_dim, 1, grad_output_, grad_output_transposed_);
      load_row_sums();
      for (int64_t i = 0; i < kTile * width_; i += V::kLanes) V::store(grad_q_ + i, V::zero());
      for_each_block<V, E>(p_, part_, row_, rows_, ranges, k_, v_, [&](const TileBlock& block) { add(block); });
      for (int64_t i = 0; i < rows_; ++i)
        add_row<V>(grad_q_ + i * width_, width_, float(p_.scale), static_cast<float*>(p_.grad_q) + query(i) * p_.grad_q_stride);
    }
  }

 private:
  int64_t query(int64_t i) const { return part_.query(row_ + i); }

  // For rows that see no key, and for the rows after the last one, the log-sum-exp becomes ∞, so that their weights are 0.
  void load_row_sums() {
    const auto* const log_sum_exp = static_cast<const float*>(p_.log_sum_exp);
    const auto* const delta = static_cast<const float*>(p_.delta);
    for (int64_t i = 0; i < kTile; ++i) {
      const float sum = i < rows_ ? log_sum_exp[query(i)] : -__builtin_inff();
      log_sum_exp_[i] = sum == -__builtin_inff() ? __builtin_inff() : sum;
      delta_[i] = i < rows_ ? delta[query(i)] : 0;
    }
  }

  void add(const TileBlock& block) {
    const auto begin = block.begin, count = block.count, keys = block.keys();
    float *const weights = block.in(weights_), *const grad_scores = block.in(grad_scores_);
    store_scores<V>(block, q_transposed_, p_.dim, weights_);
    product<V, false>(block.v_rows(), block.v.stride, 1, grad_output_transposed_ + begin, kTile, keys, p_.value_dim, count,
                      grad_scores, kTile);
    differentiate(weights, grad_scores, keys, begin, count);
    add_to_keys(p_.grad_v, p_.grad_v_stride, block, weights, grad_output_ + begin * value_width_, value_width_);
    add_to_keys(p_.grad_k, p_.grad_k_stride, block, grad_scores, q_ + begin * width_, width_);
    product<V, true>(grad_scores, 1, kTile, block.k_rows(), block.k.stride, count, keys, width_, grad_q_ + begin * width_,
                     width_);
  }

  // Replaces scores by weights, and the gradients of weights by those of scores.
  [[gnu::noinline]] void differentiate(float* weights, float* grad_scores, int64_t keys, int64_t begin, int64_t count) {
    for (int64_t c = 0; c < count; c += V::kLanes) {
      const F log_sum_exp = V::load(log_sum_exp_ + begin + c), delta = V::load(delta_ + begin + c);
      for (int64_t j = 0; j < keys; ++j) {
        float *w = weights + j * kTile + c, *g = grad_scores + j * kTile + c;
        const F weight = V::exp_nonpositive(V::sub(V::load(w), log_sum_exp));
        V::store(w, weight);
        V::store(g, V::mul(weight, V::sub(V::load(g), delta)));
      }
    }
  }

  // Adds Σ_i factors[j][i] · rows[i] over the queries i of the block to the gradient of each of its keys j.
  void add_to_keys(void* gradient, int64_t stride, const TileBlock& block, const float* factors, const float* rows,
                   int64_t width) {
    auto* const to = static_cast<float*>(gradient);
    const auto first = block.key + block.seen.begin, keys = block.keys();
    if (part_.relation != VisiblePart::Relation::summary) {
      product<V, true>(factors, kTile, 1, rows, width, keys, block.count, width, to + part_.position(first) * stride,
                       part_.step * stride);
      return;
    }
    product<V, false>(factors, kTile, 1, rows, width, keys, block.count, width, gathered_, width);
    for (int64_t j = 0; j < keys; ++j) add_row<V>(gathered_ + j * width, width, 1, to + part_.position(first + j) * stride);
  }

  const SparseHeadParams& p_;
  const VisiblePart& part_;
  int64_t width_, value_width_;
  float *q_, *q_transposed_, *grad_output_, *grad_output_transposed_, *k_, *v_, *weights_, *grad_scores_, *grad_q_, *log_sum_exp_,
      *delta_, *gathered_;
  int64_t scratch_size_;
  int64_t row_ = 0, rows_ = 0;
};

}  // namespace
}  // namespace attn::cpu
