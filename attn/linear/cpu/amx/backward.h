// The backward pass of linear attention in bfloat16 with AMX, causal or not. It computes what backward.h does, in chunks of 32
// positions.
#pragma once

#include "attn/linear/cpu/amx/chunk.h"

namespace attn::cpu {
namespace {

template <class Tiles, class Map>
class AmxBackward {
  using V = Avx512;

 public:
  AmxBackward(const LinearHeadParams& params, void* memory) : chunk_(params, memory) {}

  // Adds the keys of the range to T and Z.
  void add_keys(int64_t begin, int64_t end, float* t, float* z) {
    chunk_.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      chunk_.load_keys(first, count);
      chunk_.load_values(first, count);
      chunk_.set_transposed_pairs(b_.values);
      add_keys_to(t);
      chunk_.add_rows(b_.kappa, nullptr, padded(p_.feature_count), z);
    });
  }

  // Adds the queries of the range to R and Y.
  void add_queries(int64_t begin, int64_t end, float* r, float* y) {
    chunk_.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      chunk_.load_queries(first, count);
      chunk_.load_gradients(first, count);
      chunk_.load_delta(first, count);
      chunk_.set_transposed_pairs(b_.phi), chunk_.set_pairs(b_.gradients);
      add_queries_to(r, y);
    });
  }

  // Writes grad_q and δ, from T and Z. If causal, adds the keys of the range to T and Z.
  void backward_queries(int64_t begin, int64_t end, bool causal, float* t, float* z) {
    if (!causal) chunk_.set_state_pairs(t, p_.value_dim, p_.feature_count);
    chunk_.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      chunk_.load_gradients(first, count);
      if (causal) chunk_.load_values(first, count);
      if (causal && !(chunk_.all_finite(b_.gradients) && chunk_.all_finite(b_.values))) {
        chunk_.vector_kernels().backward_queries(p_, first, first + count, causal, t, z, chunk_.memory);
        return;
      }
      chunk_.load_queries(first, count);
      if (causal) {
        chunk_.set_state_pairs(t, p_.value_dim, p_.feature_count);
        chunk_.load_keys(first, count);
        chunk_.set_pairs(b_.kappa), chunk_.set_transposed_pairs(b_.values);
        chunk_.template set_scores<Triangle::lower>(b_.gradients, b_.values);
        chunk_.template set_weights<Triangle::lower>();
      }
      chunk_.multiply(b_.gradients.rows, b_.gradients.width, b_.state_pairs, causal ? b_.kappa.pairs : nullptr, b_.phi.width,
                      b_.output);
      for (int64_t i = 0; i < count; ++i) write_query_gradient(first + i, i, causal, z);
      if (causal) add_keys_to(t);
    });
  }

  // Writes grad_k and grad_v, from R and Y, from the last position to the first. If causal, adds the queries of the range to R
  // and Y.
  void backward_keys(int64_t begin, int64_t end, bool causal, float* r, float* y) {
    chunk_.ahead = -2 * kAmxChunk;
    if (!causal) set_factors_of_state(r);
    const int64_t last = begin + (end - begin - 1) / kAmxChunk * kAmxChunk;
    for (int64_t first = last; first >= begin; first -= kAmxChunk) {
      const int64_t count = end - first < kAmxChunk ? end - first : kAmxChunk;
      chunk_.load_values(first, count);
      if (causal) chunk_.load_gradients(first, count);
      if (causal && !(chunk_.all_finite(b_.gradients) && chunk_.all_finite(b_.values))) {
        chunk_.vector_kernels().backward_keys(p_, first, first + count, causal, r, y, chunk_.memory);
        continue;
      }
      chunk_.load_keys(first, count);
      if (causal) {
        set_factors_of_state(r);
        chunk_.load_queries(first, count);
        chunk_.load_delta(first, count);
        chunk_.set_transposed_pairs(b_.phi), chunk_.set_pairs(b_.phi), chunk_.set_transposed_pairs(b_.gradients),
            chunk_.set_pairs(b_.gradients);
        chunk_.template set_scores<Triangle::upper>(b_.kappa, b_.phi);
        chunk_.template set_weights<Triangle::upper>();
      }
      const int64_t visible = count_before(p_.visible_keys, first, count), features = b_.phi.width, width = b_.values.width;
      chunk_.multiply(b_.kappa.rows, features, b_.state_pairs, causal ? b_.gradients.pairs : nullptr, width, b_.output);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < p_.value_dim; c += V::kLanes)
          chunk_.write(p_.grad_v, first + i, c, p_.value_dim, i < visible ? V::load(b_.output + i * width + c) : V::zero());
      // The normalizer contributes to the gradient of k as if v had a column of ones, and g′ a column of δ.
      if (causal) {
        chunk_.template set_scores<Triangle::upper>(b_.values, b_.gradients);
        chunk_.template set_weights<Triangle::upper>(b_.delta);
      }
      chunk_.multiply(b_.values.rows, width, b_.transposed_state_pairs, causal ? b_.phi.pairs : nullptr, features, b_.output);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < p_.head_dim; c += V::kLanes) {
          const auto grad_phi = V::add(V::load(b_.output + i * features + c), V::load(y + c));
          const auto x = chunk_.entries(chunk_.row_of(p_.k, first + i), c, p_.head_dim),
                     kappa = V::load(b_.kappa.rows + i * features + c);
          chunk_.write(p_.grad_k, first + i, c, p_.head_dim, i < visible ? Map::gradient(x, kappa, grad_phi) : V::zero());
        }
      if (causal) add_queries_to(r, y);
    }
  }

 private:
  // T += vᵀ φ(k). Needs b_.values.transposed_pairs.
  void add_keys_to(float* t) {
    chunk_.set_pairs(b_.kappa), chunk_.set_transposed(b_.values);
    chunk_.add_to_state(t, b_.values, padded(p_.value_dim), b_.kappa, padded(p_.feature_count));
  }
  // R += φ(q)ᵀ g′, and Y += Σ δ φ(q). Needs b_.phi.transposed_pairs and b_.gradients.pairs.
  void add_queries_to(float* r, float* y) {
    chunk_.set_transposed(b_.phi);
    chunk_.add_to_state(r, b_.phi, padded(p_.feature_count), b_.gradients, padded(p_.value_dim));
    chunk_.add_rows(b_.phi, b_.delta, padded(p_.feature_count), y);
  }

  void set_factors_of_state(const float* r) {
    chunk_.set_state_pairs(r, p_.feature_count, p_.value_dim);
    chunk_.set_transposed_state_pairs(r, p_.feature_count, p_.value_dim);
  }

  // Writes δ and the gradient of the query at `position`, which is row i of the chunk. b_.output[i] is the gradient of its
  // features without the part that goes through the normalizer. If causal, first adds the key at this position to Z.
  void write_query_gradient(int64_t position, int64_t i, bool causal, float* z) {
    const int64_t features = b_.phi.width;
    const BFloat16 *phi = b_.phi.rows + i * features, *kappa = b_.kappa.rows + i * features;
    const float* grad_phi = b_.output + i * features;
    auto sum = V::zero();
    for (int64_t c = 0; c < padded(p_.feature_count); c += V::kLanes) {
      sum = V::fma(V::load(phi + c), V::load(grad_phi + c), sum);
      if (causal) V::store(z + c, V::add(V::load(z + c), V::load(kappa + c)));
    }
    const float inverse = b_.inverse[i], delta = float(p_.epsilon) * inverse * b_.shifted[i] - V::sum(sum) * inverse;
    static_cast<float*>(p_.grad_normalizer)[position] = delta;
    for (int64_t c = 0; c < p_.head_dim; c += V::kLanes) {
      const auto g = V::fma(V::all(delta), V::load(z + c), V::load(grad_phi + c));
      const auto x = chunk_.entries(chunk_.row_of(p_.q, position), c, p_.head_dim);
      chunk_.write(p_.grad_q, position, c, p_.head_dim, Map::gradient(x, V::load(phi + c), g));
    }
  }

  AmxChunk<Tiles, Map> chunk_;
  const LinearHeadParams& p_ = chunk_.params;
  AmxScratch& b_ = chunk_.buffers;
};

}  // namespace
}  // namespace attn::cpu
