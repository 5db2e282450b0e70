// LinearChunk: loads the features, values and gradients of a chunk of 16 positions into buffers, and adds chunks to states.
#pragma once

#include "attn/cpu/chunk_rows.h"
#include "attn/cpu/products.h"
#include "attn/cpu/tiles.h"
#include "attn/linear/cpu/features.h"
#include "attn/linear/cpu/scales.h"

namespace attn::cpu {
namespace {

// V are the vectors of an instruction set, E the tensors' element type, Map the feature map (features.h).
template <class V, class E, class Map>
class LinearChunk : protected LinearScales<V, has_scales(update_for(Map::kKind))> {
 protected:
  static constexpr bool kScales = has_scales(update_for(Map::kKind));
  static constexpr int64_t kNormalizers =
      normalizer_numbers(update_for(Map::kKind));  // numbers per position in LinearHeadParams::normalizer
  using Base = LinearScales<V, kScales>;
  using Base::b_;
  using Base::multiply;
  using Base::p_;
  using Base::raise_scale;
  using Base::scalar_exp;
  using Base::scale_keys;
  using Base::scale_of;
  using Base::set_state_scales;
  using Base::square_root;

 public:
  // `memory` has room for LinearScratch::size() numbers.
  LinearChunk(const LinearHeadParams& params, void* memory) : Base(params, memory) {}

  // Adds the keys of the range to S and Z, or with kTransposed to T and Z.
  template <bool kTransposed>
  void add_keys(int64_t begin, int64_t end, float* state, float* z) {
    for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      const bool in_place = !kTransposed && values_in_place(first, count);
      load_keys(first, count, !in_place);
      if (in_place) add_chunk_keys<false>(state, z, value_rows(first), p_.v.stride);
      else add_chunk_keys<kTransposed>(state, z, b_.v, b_.values);
    });
  }

  // Adds the queries of the range to R and Y.
  void add_queries(int64_t begin, int64_t end, float* r, float* y) {
    for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      load_queries(first, count);
      load_scaled_gradients(first, count);
      add_chunk_queries(r, y);
    });
  }

 protected:
  template <class Work>
  static void for_each_chunk(int64_t begin, int64_t end, const Work& work) {
    for (int64_t first = begin; first < end; first += kChunkRows)
      work(first, end - first < kChunkRows ? end - first : int64_t{kChunkRows});
  }

  // ---------------------------------------------------------- loads

  // Loads the features of `count` rows of q or k into phi, with zeros in the rows from `count` to `height`. Maps of whole rows
  // also store the rows themselves in x, and maps with scales store the scales of the 16 rows in `scales`.
  void load_features(const Rows& rows, int64_t first, int64_t count, int64_t height, float* x, float* phi, float* scales) {
    if constexpr (!kScales) {
      apply_map<V, E, Map>(rows, first, count, p_.head_dim, p_.feature_count, b_.features, ahead_, x, b_.dims, phi, height);
      return;
    } else {
      load_rows<V, E>(rows, first, count, p_.head_dim, x, b_.dims, ahead_);
      product<V, false>(x, b_.dims, 1, static_cast<const float*>(p_.projection_transposed), b_.features, (height + 3) / 4 * 4,
                        p_.head_dim, b_.features, phi, b_.features);
      const float root = square_root(float(p_.feature_count)), half = 0.5f / square_root(float(p_.head_dim));
      for (int64_t i = 0; i < kChunkRows; ++i, x += b_.dims, phi += b_.features) {
        scales[i] = float(kNoScale);
        if (i >= count) {
          for (int64_t c = 0; c < b_.features; c += V::kLanes) V::store(phi + c, V::zero());
          continue;
        }
        auto largest = V::all(-__builtin_inff());
        for (int64_t c = 0; c < b_.features; c += V::kLanes)
          largest = V::max(V::choose(lanes_before<V>(p_.feature_count, c), V::load(phi + c), largest), largest);
        const float max = V::largest(largest);
        scales[i] = max - half * dot<V>(x, x, padded(p_.head_dim));
        for (int64_t c = 0; c < b_.features; c += V::kLanes) {
          const auto e = V::div(V::exp_nonpositive(V::sub(V::load(phi + c), V::all(max))), V::all(root));
          V::store(phi + c, V::keep(e, lanes_before<V>(p_.feature_count, c)));
        }
      }
    }
  }
  void load_queries(int64_t first, int64_t count) {
    load_features(p_.q, first, count, kChunkRows, b_.q, b_.phi, b_.query_scales);
  }
  // Whether values need no conversion, padding, masking or shift, so that they can be read from the tensor, without a copy in a
  // buffer.
  bool values_in_place(int64_t first, int64_t count) const {
    return sizeof(E) == sizeof(float) && p_.value_dim == b_.values && count == kChunkRows && first + count <= p_.visible_keys &&
           !p_.value_shift;
  }
  const float* value_rows(int64_t first) const { return static_cast<const float*>(p_.v.data) + first * p_.v.stride; }
  // Features and values of hidden keys are zeros. If not with_values, the values are not loaded, but only prefetched.
  void load_keys(int64_t first, int64_t count, bool with_values = true) {
    const auto visible = count_before(p_.visible_keys, first, count);
    load_features(p_.k, first, visible, kChunkRows, b_.k, b_.kappa, b_.key_scales);
    if (with_values) {
      const auto* shift = static_cast<const float*>(p_.value_shift);
      if (!shift) return load_rows<V, E>(p_.v, first, visible, p_.value_dim, b_.v, b_.values, ahead_);
      return load_changed_rows<V, E>(
          p_.v, first, visible, p_.value_dim, b_.v, b_.values, ahead_,
          kChunkRows, [&](int64_t, int64_t c, typename V::F x) __attribute__((always_inline)) {
            return V::sub(x, V::load(shift + c));
          });
    }
    const E* next = static_cast<const E*>(p_.v.data) + (first + ahead_) * p_.v.stride;
    for (int64_t i = 0; i < kChunkRows; ++i) prefetch_row<0>(next + i * p_.v.stride, p_.value_dim);
  }
  // The entries of a row of q or k from `column` on, for the gradients of entrywise maps.
  typename V::F entries(const Rows& rows, int64_t row, int64_t column) const {
    const E* from = static_cast<const E*>(rows.data) + row * rows.stride + column;
    const int64_t rest = p_.head_dim - column;
    return rest >= V::kLanes ? V::load(from) : V::load(from, V::first(rest < 0 ? 0 : rest));
  }
  // Loads g′, δ, 1/normalizer (into b_.lanes) and, with scales, the scales of the states that the queries saw.
  void load_scaled_gradients(int64_t first, int64_t count) {
    const float* normalizer = static_cast<const float*>(p_.normalizer) + first * kNormalizers;
    const float* delta = static_cast<const float*>(p_.grad_normalizer) + first;
    for (int64_t i = 0; i < kChunkRows; ++i) {
      b_.lanes[i] = i < count ? 1 / normalizer[i * kNormalizers] : 0;
      b_.grad_normalizer[i] = i < count ? delta[i] : 0;
      if constexpr (kScales) b_.state_scales[i + 1] = i < count ? normalizer[i * kNormalizers + 1] : -float(kNoScale);
    }
    load_changed_rows<V, E>(
        p_.grad_output, first, count, p_.value_dim, b_.g, b_.values, ahead_,
        kChunkRows, [&](int64_t i, int64_t, typename V::F x) __attribute__((always_inline)) {
          return V::mul(x, V::all(b_.lanes[i]));
        });
  }

  // ---------------------------------------------------------- additions to a state

  // Adds the loaded keys to Z and to S or, with kTransposed, to T.
  template <bool kTransposed>
  void add_chunk_keys(float* state, float* z, const float* values, int64_t value_stride) {
    if constexpr (kScales) {
      set_state_scales(scale_of(z));
      const float factor = raise_scale(z, b_.state_scales[kChunkRows]);
      multiply(state, b_.features * b_.values, factor), multiply(z, b_.features, factor);
      scale_keys(scale_of(z));
    }
    if constexpr (kTransposed) add_products_of_chunk<V>(b_.v, b_.values, b_.kappa, b_.features, b_.values, b_.features, state);
    else add_products_of_chunk<V>(b_.kappa, b_.features, values, value_stride, b_.features, b_.values, state);
    add_sum_of_rows<V>(b_.kappa, b_.features, z);
  }

  // Adds the loaded queries to R and Y.
  void add_chunk_queries(float* r, float* y) {
    if constexpr (kScales) {
      float scale = scale_of(y);
      for (int i = 1; i <= kChunkRows; ++i)
        if (-b_.state_scales[i] > scale) scale = -b_.state_scales[i];
      const float factor = raise_scale(y, scale);
      multiply(r, b_.features * b_.values, factor), multiply(y, b_.features, factor);
      for (int i = 0; i < kChunkRows; ++i)
        scale_row<V>(b_.phi + i * b_.features, b_.features, scalar_exp(-b_.state_scales[i + 1] - scale));
    }
    add_products_of_chunk<V>(b_.phi, b_.features, b_.g, b_.values, b_.features, b_.values, r);
    for (int64_t c = 0; c < b_.features; c += V::kLanes) {
      auto even = V::load(y + c), odd = V::zero();
      for (int t = 0; t < kChunkRows; t += 2) {
        even = V::fma(V::all(b_.grad_normalizer[t]), V::load(b_.phi + t * b_.features + c), even);
        odd = V::fma(V::all(b_.grad_normalizer[t + 1]), V::load(b_.phi + (t + 1) * b_.features + c), odd);
      }
      V::store(y + c, V::add(even, odd));
    }
  }

  int64_t ahead_ = 2 * kChunkRows;  // how many positions ahead the kernels prefetch; negative when they go back
};

}  // namespace
}  // namespace attn::cpu
