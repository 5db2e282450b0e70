// The backward pass of LSH attention on the CPU. Weights are computed again from the order that the forward pass saved. Gradients
// are accumulated in float32 by position: [N,D] for x as a query, [N,D] for the key made from x, and [N,M] for v.
#pragma once

#include "attn/lsh/cpu/chunk.h"

namespace attn::cpu {
namespace {

template <class V, class E>
class LshBackward : public LshChunk<V, E> {
  using Base = LshChunk<V, E>;
  using Base::alternates;
  using Base::b_;
  using Base::load_keys;
  using Base::load_queries;
  using Base::p_;
  using Base::sees;
  using Base::size_of;
  using Base::softmax;

 public:
  using Base::Base;

  // Implements LshKernels::backward.
  void backward(int64_t first, int64_t last, const LshGradients& to) {
    float *grad_queries = static_cast<float*>(to.query), *grad_keys = static_cast<float*>(to.key),
          *grad_values = static_cast<float*>(to.value);
    bool carries = false;  // whether the next chunk adds to the gradients of this one's rows
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t rows = load_keys(chunk), round = chunk / p_.chunks, own = chunk % 2 * p_.chunk;
      // Where chunks take turns in the halves of the buffers, the gradients of the chunk before are still in theirs.
      const int64_t zero_from = carries ? own : 0, zeros = carries ? p_.chunk : rows;
      zero_row<V>(b_.grad_keys + zero_from * b_.dim, zeros * b_.dim);
      zero_row<V>(b_.grad_v + zero_from * b_.values, zeros * b_.values);
      for (int64_t q = 0, size = size_of(chunk); q < size; q += b_.queries) {
        const int64_t count = size - q < b_.queries ? size - q : b_.queries;
        load_queries(chunk, q, count);
        load_gradients(round, count);
        softmax(rows);
        product<V, false>(b_.v, b_.values, 1, b_.g_transposed, b_.queries, rows, p_.value_dim, b_.queries, b_.products,
                          b_.queries);
        scale_weights(rows);
        product<V, true>(b_.weights, b_.queries, 1, b_.g, b_.values, rows, b_.queries, b_.values, b_.grad_v, b_.values);
        differentiate_softmax(rows);
        product<V, true>(b_.products, b_.queries, 1, b_.x, b_.dim, rows, b_.queries, b_.dim, b_.grad_keys, b_.dim);
        product<V, false>(b_.products, 1, b_.queries, b_.keys, b_.dim, b_.queries, rows, b_.dim, b_.out, b_.dim);
        for (int64_t i = 0; i < count; ++i)
          add_row<V>(b_.out + i * b_.dim, b_.dim, 1, grad_queries + int64_t(b_.query_positions[i]) * b_.dim);
      }
      carries = alternates(chunk) && chunk + 1 < last && alternates(chunk + 1);
      for (int64_t j = 0; j < rows; ++j) {
        if (b_.key_positions[j] < 0 || (carries && j >= own && j < own + p_.chunk)) continue;
        add_row<V>(b_.grad_keys + j * b_.dim, b_.dim, 1, grad_keys + int64_t(b_.key_positions[j]) * b_.dim);
        add_row<V>(b_.grad_v + j * b_.values, b_.values, 1, grad_values + int64_t(b_.key_positions[j]) * b_.values);
      }
    }
  }

 private:
  // Loads the queries' rows of grad_output. Sets b_.factors to the share of the round in each row's output, and b_.deltas to
  // grad_output · output for trax and to zeros otherwise.
  void load_gradients(int64_t round, int64_t count) {
    for (int64_t i = 0; i < b_.queries; ++i) {
      const int64_t position = b_.query_positions[i];
      // If the query of a hidden position is not finite, its row of the output is NaN. That row contributes no gradient.
      if (i < count && (!b_.query_not_finite[i] || position < p_.visible_keys)) {
        load_row<V, E>(p_.grad_output, position, p_.value_dim, b_.g + i * b_.values);
        b_.factors[i] = static_cast<const float*>(p_.shares)[round * p_.length + position];
        if (p_.trax) {
          // Σ w (g·v) over all rounds equals g·output.
          load_row<V, E>(p_.output, position, p_.value_dim, b_.out);
          b_.deltas[i] = dot<V>(b_.g + i * b_.values, b_.out, b_.values);
        } else {
          b_.deltas[i] = 0;
        }
      } else {
        zero_row<V>(b_.g + i * b_.values, b_.values);
        b_.factors[i] = b_.deltas[i] = 0;
      }
    }
    transpose<V>(b_.g, b_.values, b_.queries, b_.values, b_.g_transposed, b_.queries);
  }

  // Normalises the weights, so that they are the factors of the values in the output row.
  void scale_weights(int64_t rows) {
    for (int64_t i = 0; i < b_.queries; ++i) b_.factors[i] = b_.sum[i] > 0 ? b_.factors[i] / b_.sum[i] : 0;
    for (int64_t j = 0; j < rows; ++j)
      for (int64_t c = 0; c < b_.queries; c += V::kLanes) {
        float* p = b_.weights + j * b_.queries + c;
        V::store(p, b_.key_positions[j] < 0 ? V::zero() : V::keep(V::mul(V::load(p), V::load(b_.factors + c)), sees(j, c)));
      }
  }

  // Replaces b_.products[j][i] = g·v by the gradients of the logits, w · (g·v − Σ w (g·v)).
  void differentiate_softmax(int64_t rows) {
    for (int64_t c = 0; c < b_.queries; c += V::kLanes) {
      auto delta = V::load(b_.deltas + c);
      if (!p_.trax) {
        // The weights of a round sum to 1/R, so the sum is multiplied by R.
        for (int64_t j = 0; j < rows; ++j)
          delta = V::fma(V::load(b_.weights + j * b_.queries + c), V::load(b_.products + j * b_.queries + c), delta);
        delta = V::mul(delta, V::all(float(p_.rounds)));
      }
      for (int64_t j = 0; j < rows; ++j) {
        float* p = b_.products + j * b_.queries + c;
        const auto g = V::mul(V::load(b_.weights + j * b_.queries + c), V::sub(V::load(p), delta));
        V::store(p, b_.key_positions[j] < 0 ? V::zero() : V::keep(g, sees(j, c)));
      }
    }
  }
};

// Implements LshKernels::store_gradients. grad_qk has two parts: from x as a query, and from the key x · scale / √D, where scale
// depends on x too.
template <class V, class E>
inline void store_gradients(const LshHeadParams& p, int64_t begin, int64_t end, const LshGradients& from) {
  const auto dim = padded(p.dim), values = padded(p.value_dim);
  const float root = 1 / std::sqrt(float(p.dim));
  constexpr int64_t kMaxBuffered = 256;
  float buffer[kMaxBuffered];
  float* x = dim <= kMaxBuffered ? buffer : new float[size_t(dim)];
  for (int64_t i = begin; i < end; ++i) {
    float *grad_query = static_cast<float*>(from.query) + i * dim, *grad_key = static_cast<float*>(from.key) + i * dim;
    load_finite_row<V, E>(p.qk, i, p.dim, x);
    const float scale = key_scale<V>(p, x);
    const float along = dot<V>(x, grad_key, dim) * scale * scale * scale / (p.trax ? float(p.dim) : 1.0f);
    add_row<V>(grad_key, dim, scale * root, grad_query);
    add_row<V>(x, dim, -along * root, grad_query);
    store_row<V, E>(p.grad_qk, i, p.dim, grad_query);
    store_row<V, E>(p.grad_v, i, p.value_dim, static_cast<float*>(from.value) + i * values);
  }
  if (x != buffer) delete[] x;
}

}  // namespace
}  // namespace attn::cpu
