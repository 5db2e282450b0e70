// LinearChunk: loads the features, values and gradients of a chunk of 16 positions into buffers, and adds chunks to states.
#pragma once

#include "attn/cpu/chunk_rows.h"
#include "attn/cpu/products.h"
#include "attn/cpu/tiles.h"
#include "attn/linear/cpu/vectors/features.h"
#include "attn/linear/cpu/vectors/scales.h"

namespace attn::cpu {
namespace {

template <class Map>
constexpr bool kHasScales = has_scales(update_for(Map::kKind));
// How many numbers LinearHeadParams::normalizer has for each position.
template <class Map>
constexpr int64_t kNormalizers = normalizer_numbers(update_for(Map::kKind));

// The parameters p and the buffers b of a chunk, and what the passes do with it. V are the vectors of an instruction set, E the
// tensors' element type, Map the feature map (features.h).
template <class V, class E, class Map>
struct LinearChunk {
  // `memory` has room for LinearScratch::size() numbers.
  LinearChunk(const LinearHeadParams& params, void* memory) : LinearChunk(params, ScratchCutter(memory)) {}
  LinearChunk(const LinearChunk&) = delete;
  LinearChunk& operator=(const LinearChunk&) = delete;

  // Adds the keys of the range to S and Z, or with kTransposed to T and Z.
  template <bool kTransposed>
  void add_keys(int64_t begin, int64_t end, float* state, float* z) {
    for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      const bool in_place = !kTransposed && values_in_place(first, count);
      load_keys(first, count, !in_place);
      if (in_place) add_chunk_keys<false>(state, z, value_rows(first), p.v.stride);
      else add_chunk_keys<kTransposed>(state, z, b.v, b.values);
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

  template <class Work>
  static void for_each_chunk(int64_t begin, int64_t end, const Work& work) {
    for (int64_t first = begin; first < end; first += kChunkRows)
      work(first, end - first < kChunkRows ? end - first : int64_t{kChunkRows});
  }

  // ---------------------------------------------------------- loads

  // Loads the features of `count` rows of q or k into phi, with zeros in the rows from `count` to `height`. Maps of whole rows
  // also store the rows themselves in x, and maps with scales store the scales of the 16 rows in `row_scales`.
  void load_features(const Rows& rows, int64_t first, int64_t count, int64_t height, float* x, float* phi, float* row_scales) {
    if constexpr (!kHasScales<Map>) {
      apply_map<V, E, Map>(rows, first, count, p.head_dim, p.feature_count, b.features, ahead, x, b.dims, phi, height);
      return;
    } else {
      load_rows<V, E>(rows, first, count, p.head_dim, x, b.dims, ahead);
      product<V, false>(x, b.dims, 1, static_cast<const float*>(p.projection_transposed), b.features, (height + 3) / 4 * 4,
                        p.head_dim, b.features, phi, b.features);
      const float root = square_root(float(p.feature_count)), half = 0.5f / square_root(float(p.head_dim));
      for (int64_t i = 0; i < kChunkRows; ++i, x += b.dims, phi += b.features) {
        row_scales[i] = float(kNoScale);
        if (i >= count) {
          for (int64_t c = 0; c < b.features; c += V::kLanes) V::store(phi + c, V::zero());
          continue;
        }
        auto largest = V::all(-__builtin_inff());
        for (int64_t c = 0; c < b.features; c += V::kLanes)
          largest = V::max(V::choose(lanes_before<V>(p.feature_count, c), V::load(phi + c), largest), largest);
        const float max = V::largest(largest);
        row_scales[i] = max - half * dot<V>(x, x, padded(p.head_dim));
        for (int64_t c = 0; c < b.features; c += V::kLanes) {
          const auto e = V::div(V::exp_nonpositive(V::sub(V::load(phi + c), V::all(max))), V::all(root));
          V::store(phi + c, V::keep(e, lanes_before<V>(p.feature_count, c)));
        }
      }
    }
  }
  void load_queries(int64_t first, int64_t count) { load_features(p.q, first, count, kChunkRows, b.q, b.phi, b.query_scales); }
  // Whether values need no conversion, padding, masking or shift, so that they can be read from the tensor instead of from a
  // copy.
  bool values_in_place(int64_t first, int64_t count) const {
    return sizeof(E) == sizeof(float) && p.value_dim == b.values && count == kChunkRows && first + count <= p.visible_keys &&
           !p.value_shift;
  }
  const float* value_rows(int64_t first) const { return static_cast<const float*>(p.v.data) + first * p.v.stride; }
  // Loads features and values of keys; those of hidden keys become zeros. Without `with_values`, values are only prefetched.
  void load_keys(int64_t first, int64_t count, bool with_values = true) {
    const auto visible = count_before(p.visible_keys, first, count);
    load_features(p.k, first, visible, kChunkRows, b.k, b.kappa, b.key_scales);
    if (with_values) {
      const auto* shift = static_cast<const float*>(p.value_shift);
      if (!shift) return load_rows<V, E>(p.v, first, visible, p.value_dim, b.v, b.values, ahead);
      return load_changed_rows<V, E>(
          p.v, first, visible, p.value_dim, b.v, b.values, ahead,
          kChunkRows, [&](int64_t, int64_t c, typename V::F x) __attribute__((always_inline)) {
            return V::sub(x, V::load(shift + c));
          });
    }
    const E* next = static_cast<const E*>(p.v.data) + (first + ahead) * p.v.stride;
    for (int64_t i = 0; i < kChunkRows; ++i) prefetch_row<0>(next + i * p.v.stride, p.value_dim);
  }
  // The entries of a row of q or k from `column` on, for the gradients of entrywise maps.
  typename V::F entries(const Rows& rows, int64_t row, int64_t column) const {
    const E* from = static_cast<const E*>(rows.data) + row * rows.stride + column;
    const int64_t rest = p.head_dim - column;
    return rest >= V::kLanes ? V::load(from) : V::load(from, V::first(rest < 0 ? 0 : rest));
  }
  // Loads g′, δ, 1/normalizer (into b.lanes) and, with scales, the scales of the states that the queries saw.
  void load_scaled_gradients(int64_t first, int64_t count) {
    const float* normalizer = static_cast<const float*>(p.normalizer) + first * kNormalizers<Map>;
    const float* delta = static_cast<const float*>(p.grad_normalizer) + first;
    for (int64_t i = 0; i < kChunkRows; ++i) {
      b.lanes[i] = i < count ? 1 / normalizer[i * kNormalizers<Map>] : 0;
      b.grad_normalizer[i] = i < count ? delta[i] : 0;
      if constexpr (kHasScales<Map>) b.state_scales[i + 1] = i < count ? normalizer[i * kNormalizers<Map> + 1] : -float(kNoScale);
    }
    load_changed_rows<V, E>(
        p.grad_output, first, count, p.value_dim, b.g, b.values, ahead,
        kChunkRows, [&](int64_t i, int64_t, typename V::F x) __attribute__((always_inline)) {
          return V::mul(x, V::all(b.lanes[i]));
        });
  }

  // ---------------------------------------------------------- additions to a state

  // Adds the loaded keys to Z and to S or, with kTransposed, to T.
  template <bool kTransposed>
  void add_chunk_keys(float* state, float* z, const float* values, int64_t value_stride) {
    if constexpr (kHasScales<Map>) {
      scales().set_state_scales(scales().scale_of(z));
      const float factor = scales().raise_scale(z, b.state_scales[kChunkRows]);
      multiply_unless_one<V>(state, b.features * b.values, factor), multiply_unless_one<V>(z, b.features, factor);
      scales().scale_keys(scales().scale_of(z));
    }
    if constexpr (kTransposed) add_products_of_chunk<V>(b.v, b.values, b.kappa, b.features, b.values, b.features, state);
    else add_products_of_chunk<V>(b.kappa, b.features, values, value_stride, b.features, b.values, state);
    add_sum_of_rows<V>(b.kappa, b.features, z);
  }

  // Adds the loaded queries to R and Y.
  void add_chunk_queries(float* r, float* y) {
    if constexpr (kHasScales<Map>) {
      float scale = scales().scale_of(y);
      for (int i = 1; i <= kChunkRows; ++i)
        if (-b.state_scales[i] > scale) scale = -b.state_scales[i];
      const float factor = scales().raise_scale(y, scale);
      multiply_unless_one<V>(r, b.features * b.values, factor), multiply_unless_one<V>(y, b.features, factor);
      for (int i = 0; i < kChunkRows; ++i)
        scale_row<V>(b.phi + i * b.features, b.features, scalar_exp<V>(-b.state_scales[i + 1] - scale));
    }
    add_products_of_chunk<V>(b.phi, b.features, b.g, b.values, b.features, b.values, r);
    for (int64_t c = 0; c < b.features; c += V::kLanes) {
      auto even = V::load(y + c), odd = V::zero();
      for (int t = 0; t < kChunkRows; t += 2) {
        even = V::fma(V::all(b.grad_normalizer[t]), V::load(b.phi + t * b.features + c), even);
        odd = V::fma(V::all(b.grad_normalizer[t + 1]), V::load(b.phi + (t + 1) * b.features + c), odd);
      }
      V::store(y + c, V::add(even, odd));
    }
  }

  // Returned by value, because a member that refers to b would be read from memory at each use.
  LinearScales<V> scales() { return {b}; }

  // ε, with scales divided by e^(scale of the query + scale of the state), for the vector of positions from c on.
  typename V::F epsilon(int c) const {
    if constexpr (!kHasScales<Map>) return V::all(float(p.epsilon));
    const auto scale = V::add(V::load(b.query_scales + c), V::load(b.state_scales + 1 + c));
    return V::mul(V::all(float(p.epsilon)), V::exp(V::sub(V::zero(), scale)));
  }

  const LinearHeadParams p;
  LinearScratch b;
  int64_t ahead = 2 * kChunkRows;  // how many positions ahead the kernels prefetch; negative in passes from the last to the first

 private:
  LinearChunk(const LinearHeadParams& params, ScratchCutter cut) : p(params), b(params, cut) {}
};

}  // namespace
}  // namespace attn::cpu
