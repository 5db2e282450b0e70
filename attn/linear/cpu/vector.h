// The vector kernels of linear attention; README.md says why they are shaped as they are. Compiled by linear_avx512.cpp and
// linear_avx2.cpp, each for its own vectors V.
#pragma once

#include <type_traits>

#include "attn/linear/cpu/chunk.h"
#include "attn/linear/cpu/features.h"
#include "attn/cpu/products.h"

namespace attn::kernels {
namespace {

// One allocation cut into the buffers of a chunk.
class Scratch {
 public:
  explicit Scratch(void* memory) : next_(static_cast<float*>(memory)) {}
  float* take(int64_t size) {
    float* result = next_;
    next_ += padded(size);
    return result;
  }

 private:
  float* next_;
};

template <class V, class E, class Map>
class Linear {
  static constexpr bool kScales = std::is_same_v<Map, Favor>;
  static constexpr int64_t kNormalizers = kScales ? 2 : 1;  // numbers a position

 public:
  Linear(const LinearHead& head, void* memory)
      : h_(head), dims_(dims_of(head)), features_(padded(head.feature_count)), values_(padded(head.value_dim)) {
    Scratch scratch(memory);
    const auto wide = width_of(head);
    x_ = scratch.take(kTokens * dims_);
    y_ = scratch.take(kTokens * dims_);
    phi_ = scratch.take(kTokens * features_ + kPadding);
    kappa_ = scratch.take(kTokens * features_ + kPadding);
    v_ = scratch.take(kTokens * values_);
    g_ = scratch.take(kTokens * values_);
    left_ = scratch.take(kTokens * wide);
    scores_ = scratch.take(kTokens * kTokens);
    of_rows_ = scratch.take(kTokens * wide);
    lanes_ = scratch.take(kTokens);
    delta_ = scratch.take(kTokens);
    row_ = scratch.take(dims_);
    partial_ = scratch.take(kTokens * wide);
    if constexpr (kScales) {
      query_scales_ = scratch.take(kTokens);
      key_scales_ = scratch.take(kTokens);
      state_scales_ = scratch.take(1 + kTokens);
      factors_ = scratch.take(kTokens);
    }
  }
  static int64_t scratch_size(const LinearHead& h) {
    const int64_t scales = has_scales(h.features) ? 3 * kTokens + padded(1 + kTokens) : 0;
    return kTokens * (2 * dims_of(h) + 2 * padded(h.feature_count) + 2 * padded(h.value_dim) + 3 * width_of(h) + kTokens + 2) +
           2 * kPadding + dims_of(h) + scales;
  }

  template <bool kTransposed>
  void add_keys(int64_t begin, int64_t end, float* state, float* z) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_keys(at, count);
      take_in_keys<kTransposed>(state, z, v_, values_);
    });
  }

  void forward(int64_t begin, int64_t end, float* s, float* z) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_queries(at, count);
      transpose<V>(phi_, features_, kTokens, features_, left_, kTokens);
      // Values are used where they lie, if they lie as they would in a buffer.
      const bool in_place =
          sizeof(E) == sizeof(float) && h_.value_dim == values_ && count == kTokens && at + count <= h_.visible_keys;
      load_keys(at, count, !in_place);
      const float* values = in_place ? static_cast<const float*>(h_.v.data) + at * h_.v.stride : v_;
      const int64_t value_stride = in_place ? h_.v.stride : values_;
      scores_of<V>(left_, kappa_, features_, h_.feature_count, scores_, z, lanes_);
      if constexpr (kScales) {
        set_state_scales(scale_of(z));
        weigh_scores<Triangle::lower>();
        state_scale_factors();
        scale_lanes(lanes_, 1), scale_lanes(left_, h_.feature_count);
      }
      keep_triangle<V, Triangle::lower>(scores_);
      for (int c = 0; c < kTokens; c += V::kLanes) {
        auto sum = V::add(V::load(lanes_ + c), epsilon(c));
        for (int j = 0; j < kTokens; ++j) sum = V::add(sum, V::load(scores_ + j * kTokens + c));
        V::store(lanes_ + c, sum);
      }
      write_outputs<Triangle::lower>(at, count, {left_, s, h_.feature_count, values_, scores_, values, value_stride, partial_});
      take_in_keys<false>(s, z, values, value_stride);
    });
  }

  void read(int64_t begin, int64_t end, const float* s, const float* z) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_queries(at, count);
      transpose<V>(phi_, features_, kTokens, features_, left_, kTokens);
      dot_rows<V>(left_, z, h_.feature_count, lanes_);
      if constexpr (kScales)
        for (int i = 0; i <= kTokens; ++i) state_scales_[i] = scale_of(z);
      for (int c = 0; c < kTokens; c += V::kLanes) V::store(lanes_ + c, V::add(V::load(lanes_ + c), epsilon(c)));
      write_outputs<Triangle::lower>(at, count, {left_, s, h_.feature_count, values_, nullptr, nullptr, 0, partial_});
    });
  }

  void backward_queries(int64_t begin, int64_t end, bool causal, float* t, float* z) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_queries(at, count);
      load_gradients(at, count);
      transpose<V>(g_, values_, kTokens, values_, left_, kTokens);
      const auto store = [&](int row, int64_t column, typename V::F sum) __attribute__((always_inline)) {
        V::store(of_rows_ + row * features_ + column, sum);
      };
      if (causal) {
        load_keys(at, count);
        scores_of<V>(left_, v_, values_, h_.value_dim, scores_);
        if constexpr (kScales) {
          set_state_scales(scale_of(z));
          weigh_scores<Triangle::lower>();
          state_scale_factors();
          scale_lanes(left_, h_.value_dim);
        }
        keep_triangle<V, Triangle::lower>(scores_);
        read_rows<V, Triangle::lower>({left_, t, h_.value_dim, features_, scores_, kappa_, features_, partial_}, store);
      } else {
        read_rows<V, Triangle::lower>({left_, t, h_.value_dim, features_, nullptr, nullptr, 0, partial_}, store);
      }
      float* normalizer_gradient = static_cast<float*>(h_.normalizer_gradient) + at;
      const RowStore<V, E> to(h_.q_gradient, at, count, h_.head_dim, ahead_);
      for (int64_t i = 0; i < count; ++i) {
        const float *phi = phi_ + i * features_, *kappa = kappa_ + i * features_;
        float* of_phi = of_rows_ + i * features_;
        const auto z_factor = V::all(kScales && causal ? exp_of(state_scales_[i] - state_scales_[i + 1]) : 1),
                   key_factor = V::all(kScales && causal ? exp_of(key_scales_[i] - state_scales_[i + 1]) : 1);
        auto sum = V::zero();
        for (int64_t c = 0; c < features_; c += V::kLanes) {
          sum = V::fma(V::load(phi + c), V::keep(V::load(of_phi + c), V::first(rest_of(h_.feature_count, c))), sum);
          if (!causal) continue;
          if constexpr (kScales) V::store(z + c, V::fma(V::load(kappa + c), key_factor, V::mul(V::load(z + c), z_factor)));
          else V::store(z + c, V::add(V::load(z + c), V::load(kappa + c)));
        }
        const float delta = -V::sum(sum) * lanes_[i];
        normalizer_gradient[i] = delta;
        for (int64_t c = 0; c < features_; c += V::kLanes) {
          const auto g = V::fma(V::all(delta), V::load(z + c), V::load(of_phi + c));
          if constexpr (Map::kEntrywise) to(i, c, Map::gradient(entries(h_.q, at + i, c), V::load(phi + c), g));
          else V::store(of_phi + c, g);
        }
      }
      if constexpr (!Map::kEntrywise) write_row_gradients(to, count, count, x_, phi_);
      if (!causal) return;
      if constexpr (kScales) {
        multiply(t, features_ * values_, rise(z, state_scales_[kTokens]));
        weigh_keys(state_scales_[kTokens]);
      }
      product<V, true>(v_, 1, values_, kappa_, features_, values_, kTokens, features_, t, features_);
    });
  }

  void add_queries(int64_t begin, int64_t end, float* r, float* y) {
    for_each_chunk(begin, end, [&](int64_t at, int64_t count) {
      load_queries(at, count);
      load_gradients(at, count);
      take_in_queries(r, y);
    });
  }

  void backward_keys(int64_t begin, int64_t end, bool causal, float* r, float* y) {
    ahead_ = -2 * kTokens;
    const int64_t last = begin + (end - begin - 1) / kTokens * kTokens;
    for (int64_t at = last; at >= begin; at -= kTokens) {
      const int64_t count = end - at < kTokens ? end - at : kTokens;
      load_keys(at, count);
      const int64_t seen = rest_of(h_.visible_keys, at, count);
      if (causal) {
        load_queries(at, count);
        load_gradients(at, count);
      }
      const auto f = h_.feature_count, m = h_.value_dim;
      // The gradient of v.
      transpose<V>(kappa_, features_, kTokens, features_, left_, kTokens);
      if (causal) {
        scores_of<V>(left_, phi_, features_, f, scores_);
        if constexpr (kScales) weigh_scores<Triangle::upper>();
        keep_triangle<V, Triangle::upper>(scores_);
      }
      if constexpr (kScales) {
        exp_of_lanes([&](int c) { return V::add(V::load(key_scales_ + c), V::all(scale_of(y))); });
        scale_lanes(left_, f);
      }
      write_gradient(h_.v_gradient, at, count, seen, m, {left_, r, f, values_, causal ? scores_ : nullptr, g_, values_, partial_},
                     [](int64_t, int64_t, typename V::F x) { return x; });
      // The gradient of k, the normalizer's part of the scores being a column of ones in v and of δ in g′.
      transpose<V>(v_, values_, kTokens, values_, left_, kTokens);
      if (causal) score_values_with_delta();
      if constexpr (kScales) scale_lanes(left_, m);
      read_transposed(r, m);
      const ReadTile tile{left_, nullptr, 0, features_, causal ? scores_ : nullptr, phi_, features_, partial_, /*resumed=*/true};
      if constexpr (Map::kEntrywise) {
        write_gradient(
            h_.k_gradient, at, count, seen, h_.head_dim,
            tile, [&](int64_t row, int64_t column, typename V::F x) __attribute__((always_inline)) {
              const auto i = row * features_ + column;
              return Map::gradient(entries(h_.k, at + row, column), V::load(kappa_ + i), V::add(x, V::load(y + column)));
            });
      } else {
        read_rows<V, Triangle::upper>(
            tile, [&](int row, int64_t column, typename V::F sum) __attribute__((always_inline)) {
              const auto factor = V::all(kScales ? factors_[row] : 1);
              V::store(of_rows_ + row * features_ + column, V::fma(factor, V::load(y + column), sum));
            });
        write_row_gradients({h_.k_gradient, at, count, h_.head_dim, ahead_}, count, seen, y_, kappa_);
      }
      if (causal) take_in_queries(r, y);
    }
  }

  // Each row of S is read and written once, both sums on the way.
  void step(float* s, float* z) {
    load_rows<V, E>(h_.v, 0, 1, h_.value_dim, v_, values_, 0, 1);
    ahead_ = 0;
    load_features(h_.q, 0, 1, 1, x_, phi_, query_scales_);
    load_features(h_.k, 0, 1, 1, y_, kappa_, key_scales_);
    float epsilon = h_.epsilon, shrink = 1;
    if constexpr (kScales) {
      float& scale = z[h_.feature_count];
      const float to = key_scales_[0] > scale ? key_scales_[0] : scale;
      shrink = exp_of(scale - to);
      epsilon *= exp_of(-query_scales_[0] - to);
      scale_row<V>(kappa_, features_, exp_of(key_scales_[0] - to));
      scale = to;
    }
    auto total = V::zero();
    for (int64_t c = 0; c < h_.feature_count; c += V::kLanes) {
      const auto some = V::first(rest_of(h_.feature_count, c));
      const auto sum = plus_shrunk(V::load(kappa_ + c), V::load(z + c, some), V::all(shrink));
      V::store(z + c, sum, some);
      total = V::fma(V::load(phi_ + c), sum, total);
    }
    const auto factor = V::all(1 / (V::sum(total) + epsilon));
    const RowStore<V, E> to(h_.output, 0, 1, h_.value_dim, 0);
    int64_t m = 0;
    for (; m + 4 * V::kLanes <= h_.value_dim; m += 4 * V::kLanes)
      step_columns<4>(s, m, V::first(V::kLanes), V::all(shrink), factor, to);
    for (; m < h_.value_dim; m += V::kLanes)
      step_columns<1>(s, m, V::first(rest_of(h_.value_dim, m)), V::all(shrink), factor, to);
  }

 private:
  // Columns m … of S, kColumns vectors of them, `some` lanes of the last.
  template <int kColumns>
  void step_columns(float* s, int64_t m, typename V::Mask some, typename V::F shrink, typename V::F factor,
                    const RowStore<V, E>& to) {
    typename V::F v[kColumns], sum[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) v[c] = V::load(v_ + m + c * V::kLanes), sum[c] = V::zero();
    for (int64_t d = 0; d < h_.feature_count; ++d) {
      const auto kappa = V::all(kappa_[d]), phi = V::all(phi_[d]);
      float* row = s + d * h_.value_dim + m;
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        float* p = row + c * V::kLanes;
        auto x = kColumns > 1 ? V::load(p) : V::load(p, some);
        if constexpr (kScales) x = V::mul(x, shrink);
        x = V::fma(kappa, v[c], x);
        if constexpr (kColumns > 1) V::store(p, x);
        else V::store(p, x, some);
        sum[c] = V::fma(phi, x, sum[c]);
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) to(0, m + c * V::kLanes, V::mul(sum[c], factor));
  }

  // How many of the `most` lanes from c on lie before n.
  static int64_t rest_of(int64_t n, int64_t c, int64_t most = V::kLanes) {
    const auto rest = n - c;
    return rest < 0 ? 0 : rest > most ? most : rest;
  }
  template <class Work>
  static void for_each_chunk(int64_t begin, int64_t end, const Work& work) {
    for (int64_t at = begin; at < end; at += kTokens) work(at, end - at < kTokens ? end - at : int64_t{kTokens});
  }

  // Of x: maps of rows read some more behind the entries.
  static int64_t dims_of(const LinearHead& h) { return padded(h.head_dim) + (Map::kEntrywise ? 0 : kPadding); }
  // Of what any product of a chunk has as rows.
  static int64_t width_of(const LinearHead& h) {
    const auto larger = [](int64_t a, int64_t b) { return padded(a > b ? a : b); };
    return larger(h.head_dim, larger(h.feature_count, h.value_dim));
  }

  // Rows of q or k, those from `count` on as zeros; what of x the map's gradient needs, features, scales.
  void load_features(const Rows& rows, int64_t at, int64_t count, int64_t height, float* x, float* phi, float* scales) {
    if constexpr (!kScales) {
      apply_map<V, E, Map>(rows, at, count, h_.head_dim, h_.feature_count, features_, ahead_, x, dims_, phi, height);
      return;
    } else {
      load_rows<V, E>(rows, at, count, h_.head_dim, x, dims_, ahead_);
      product<V, false>(x, dims_, 1, static_cast<const float*>(h_.projection_transposed), features_, (height + 3) / 4 * 4,
                        h_.head_dim, features_, phi, features_);
      const float root = root_of(float(h_.feature_count)), half = 0.5f / root_of(float(h_.head_dim));
      for (int64_t i = 0; i < kTokens; ++i, x += dims_, phi += features_) {
        scales[i] = kNoScale;
        if (i >= count) {
          for (int64_t c = 0; c < features_; c += V::kLanes) V::store(phi + c, V::zero());
          continue;
        }
        auto largest = V::all(-__builtin_inff());
        for (int64_t c = 0; c < features_; c += V::kLanes)
          largest = V::max(V::choose(V::first(rest_of(h_.feature_count, c)), V::load(phi + c), largest), largest);
        const float most = V::largest(largest);
        scales[i] = most - half * dot<V>(x, x, padded(h_.head_dim));
        for (int64_t c = 0; c < features_; c += V::kLanes) {
          const auto e = V::div(V::exp(V::sub(V::load(phi + c), V::all(most))), V::all(root));
          V::store(phi + c, V::keep(e, V::first(rest_of(h_.feature_count, c))));
        }
      }
    }
  }

  // Of rows of q or k, from those of their features in of_rows_; rows from `seen` on get zeros.
  void write_row_gradients(const RowStore<V, E>& to, int64_t count, int64_t seen, const float* x, const float* phi) {
    if constexpr (kScales) {
      // e = φ·∂φ is the gradient of the exponents ωx̃ − ‖x̃‖²/2: so that of x is (eω − x̃ Σe)/D^¼.
      const float root = root_of(float(h_.head_dim));
      for (int64_t i = 0; i < kTokens; ++i) {
        auto sum = V::zero();
        for (int64_t c = 0; c < features_; c += V::kLanes) {
          float* p = of_rows_ + i * features_ + c;
          const auto e = V::mul(V::load(phi + i * features_ + c), V::keep(V::load(p), V::first(rest_of(h_.feature_count, c))));
          V::store(p, e);
          sum = V::add(sum, e);
        }
        lanes_[i] = -V::sum(sum) / root;
      }
      const int64_t width = padded(h_.head_dim);
      product<V, false>(of_rows_, features_, 1, static_cast<const float*>(h_.projection), width, kTokens, h_.feature_count, width,
                        partial_, width);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < width; c += V::kLanes) {
          const auto all = V::fma(V::all(lanes_[i]), V::load(x + i * dims_ + c), V::load(partial_ + i * width + c));
          to(i, c, i < seen ? all : V::zero());
        }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        if (i < seen) Map::gradient(x + i * dims_, phi + i * features_, of_rows_ + i * features_, h_.head_dim, row_);
        for (int64_t c = 0; c < h_.head_dim; c += V::kLanes) to(i, c, i < seen ? V::load(row_ + c) : V::zero());
      }
    }
  }

  // ---------------------------------------------------------- scales

  static float root_of(float x) { return __builtin_sqrtf(x); }
  static float exp_of(float x) {
    float lanes[V::kLanes];
    V::store(lanes, V::exp(V::all(x)));
    return lanes[0];
  }
  float scale_of(const float* z) const { return z[features_]; }
  // The state's after each position, in [1 + i]; before the chunk in [0].
  void set_state_scales(float before) {
    state_scales_[0] = before;
    for (int i = 0; i < kTokens; ++i)
      state_scales_[i + 1] = key_scales_[i] > state_scales_[i] ? key_scales_[i] : state_scales_[i];
  }
  // factors_[c] = e^exponent(c)
  template <class Exponent>
  void exp_of_lanes(const Exponent& exponent) {
    for (int c = 0; c < kTokens; c += V::kLanes) V::store(factors_ + c, V::exp(exponent(c)));
  }
  // Of the state before the chunk beside that of each position.
  void state_scale_factors() {
    exp_of_lanes([&](int c) { return V::sub(V::all(state_scales_[0]), V::load(state_scales_ + 1 + c)); });
  }
  void scale_lanes(float* x, int64_t rows) const {
    for (float* end = x + rows * kTokens; x < end; x += kTokens)
      for (int c = 0; c < kTokens; c += V::kLanes) V::store(x + c, V::mul(V::load(x + c), V::load(factors_ + c)));
  }
  // Scores of keys, relative to the states that their queries see. What a query does not see may become infinite: keep_triangle()
  // leaves it out.
  template <Triangle kTriangle>
  void weigh_scores() {
    for (int j = 0; j < kTokens; ++j)
      for (int c = 0; c < kTokens; c += V::kLanes) {
        float* p = scores_ + j * kTokens + c;
        const auto exponent = kTriangle == Triangle::lower ? V::sub(V::all(key_scales_[j]), V::load(state_scales_ + 1 + c))
                                                           : V::sub(V::load(key_scales_ + c), V::all(state_scales_[1 + j]));
        V::store(p, V::mul(V::load(p), V::exp(exponent)));
      }
  }
  void weigh_keys(float scale) {
    for (int j = 0; j < kTokens; ++j) scale_row<V>(kappa_ + j * features_, features_, exp_of(key_scales_[j] - scale));
  }
  // The factor for a state whose scale rises.
  float rise(float* z, float to) const {
    float& scale = z[features_];
    const float factor = to > scale ? exp_of(scale - to) : 1;
    if (to > scale) scale = to;
    return factor;
  }
  static void multiply(float* x, int64_t size, float factor) {
    if (factor != 1) scale_row<V>(x, size, factor);
  }
  // As the normalizer of 16 positions sees it.
  typename V::F epsilon(int c) const {
    if constexpr (!kScales) return V::all(h_.epsilon);
    const auto scale = V::add(V::load(query_scales_ + c), V::load(state_scales_ + 1 + c));
    return V::mul(V::all(h_.epsilon), V::exp(V::sub(V::zero(), scale)));
  }
  static typename V::F plus_shrunk(typename V::F x, typename V::F old, typename V::F shrink) {
    if constexpr (kScales) return V::fma(old, shrink, x);
    else return V::add(old, x);
  }

  // ---------------------------------------------------------- a chunk

  void load_queries(int64_t at, int64_t count) { load_features(h_.q, at, count, kTokens, x_, phi_, query_scales_); }
  // Hidden keys have no features and no values.
  void load_keys(int64_t at, int64_t count, bool with_values = true) {
    const auto seen = rest_of(h_.visible_keys, at, count);
    load_features(h_.k, at, seen, kTokens, y_, kappa_, key_scales_);
    if (with_values) return load_rows<V, E>(h_.v, at, seen, h_.value_dim, v_, values_, ahead_);
    const E* next = static_cast<const E*>(h_.v.data) + (at + ahead_) * h_.v.stride;
    for (int64_t i = 0; i < kTokens; ++i) prefetch_row<0>(next + i * h_.v.stride, h_.value_dim);
  }
  // Entries of a tensor's row as they came, for maps that go entry by entry.
  typename V::F entries(const Rows& rows, int64_t row, int64_t column) const {
    const E* from = static_cast<const E*>(rows.data) + row * rows.stride + column;
    const int64_t rest = h_.head_dim - column;
    return rest >= V::kLanes ? V::load(from) : V::load(from, V::first(rest < 0 ? 0 : rest));
  }
  // g′, and 1/normalizer in lanes_.
  void load_gradients(int64_t at, int64_t count) {
    load_rows<V, E>(h_.gradient, at, count, h_.value_dim, g_, values_, ahead_);
    const float* normalizer = static_cast<const float*>(h_.normalizer) + at * kNormalizers;
    const float* delta = static_cast<const float*>(h_.normalizer_gradient) + at;
    for (int64_t i = 0; i < kTokens; ++i) {
      lanes_[i] = i < count ? 1 / normalizer[i * kNormalizers] : 0;
      delta_[i] = i < count ? delta[i] : 0;
      if constexpr (kScales) state_scales_[i + 1] = i < count ? normalizer[i * kNormalizers + 1] : -kNoScale;
      if (i < count)
        for (int64_t c = 0; c < values_; c += V::kLanes)
          V::store(g_ + i * values_ + c, V::mul(V::load(g_ + i * values_ + c), V::all(lanes_[i])));
    }
  }

  template <bool kTransposed>
  void take_in_keys(float* state, float* z, const float* values, int64_t value_stride) {
    if constexpr (kScales) {
      set_state_scales(scale_of(z));
      const float factor = rise(z, state_scales_[kTokens]);
      multiply(state, features_ * values_, factor), multiply(z, features_, factor);
      weigh_keys(scale_of(z));
    }
    if constexpr (kTransposed) product<V, true>(v_, 1, values_, kappa_, features_, values_, kTokens, features_, state, features_);
    else product<V, true>(kappa_, 1, features_, values, value_stride, features_, kTokens, values_, state, values_);
    add_sum_of_rows<V>(kappa_, features_, z);
  }

  void take_in_queries(float* r, float* y) {
    if constexpr (kScales) {
      float to = scale_of(y);
      for (int i = 1; i <= kTokens; ++i)
        if (-state_scales_[i] > to) to = -state_scales_[i];
      const float factor = rise(y, to);
      multiply(r, features_ * values_, factor), multiply(y, features_, factor);
      for (int i = 0; i < kTokens; ++i) scale_row<V>(phi_ + i * features_, features_, exp_of(-state_scales_[i + 1] - to));
    }
    product<V, true>(phi_, 1, features_, g_, values_, features_, kTokens, values_, r, values_);
    for (int64_t c = 0; c < features_; c += V::kLanes) {
      auto sum = V::load(y + c);
      for (int t = 0; t < kTokens; ++t) sum = V::fma(V::all(delta_[t]), V::load(phi_ + t * features_ + c), sum);
      V::store(y + c, sum);
    }
  }

  // partial_[i][f] = Σ_m left_[m][i] · r[f][m]: a product along the rows of R, so its rows are taken as scores of 16 lanes.
  void read_transposed(const float* r, int64_t m) {
    constexpr int kRows = V::kLanes == 16 ? 16 : 4;
    for (int64_t f = 0; f < features_; f += kRows)
      score_rows<V, kRows>(left_, r + f * values_, values_, m, of_rows_ + f * kTokens);
    for (int64_t f = 0; f < features_; f += V::kLanes)
      for (int t = 0; t < kTokens; t += V::kLanes)
        V::transpose(of_rows_ + f * kTokens + t, kTokens, partial_ + t * features_ + f, features_);
  }

  // Of normalizers in lanes_.
  template <Triangle kTriangle>
  void write_outputs(int64_t at, int64_t count, const ReadTile& tile) {
    float* normalizer = static_cast<float*>(h_.normalizer) + at * kNormalizers;
    for (int64_t i = 0; i < count; ++i) {
      normalizer[i * kNormalizers] = lanes_[i];
      if constexpr (kScales) normalizer[i * kNormalizers + 1] = state_scales_[1 + i];
    }
    for (int c = 0; c < kTokens; c += V::kLanes) V::store(lanes_ + c, V::div(V::all(1), V::load(lanes_ + c)));
    const RowStore<V, E> to(h_.output, at, count, h_.value_dim, ahead_);
    read_rows<V, kTriangle>(
        tile, [&](int row, int64_t column, typename V::F sum)
                  __attribute__((always_inline)) { to(row, column, V::mul(sum, V::all(lanes_[row]))); });
  }

  // Scores of v and g′ with δ of the query added: [16][16], row i a query, column j a key.
  void score_values_with_delta() {
    scores_of<V>(left_, g_, values_, h_.value_dim, scores_);
    for (int i = 0; i < kTokens; ++i)
      for (int c = 0; c < kTokens; c += V::kLanes) {
        float* p = scores_ + i * kTokens + c;
        V::store(p, V::add(V::load(p), V::all(delta_[i])));
      }
    if constexpr (kScales) weigh_scores<Triangle::upper>();
    keep_triangle<V, Triangle::upper>(scores_);
  }

  // Rows of keys; those from `seen` on are hidden and get zeros.
  template <class Finish>
  void write_gradient(const Rows& rows, int64_t at, int64_t count, int64_t seen, int64_t dim, const ReadTile& tile,
                      const Finish& finish) {
    const RowStore<V, E> to(rows, at, count, dim, ahead_);
    read_rows<V, Triangle::upper>(
        tile, [&](int row, int64_t column, typename V::F sum)
                  __attribute__((always_inline)) { to(row, column, row < seen ? finish(row, column, sum) : V::zero()); });
  }

  LinearHead h_;
  int64_t ahead_ = 2 * kTokens;
  int64_t dims_, features_, values_;  // padded
  float *x_, *y_, *phi_, *kappa_, *v_, *g_, *left_, *scores_, *of_rows_, *lanes_, *delta_, *row_, *partial_;
  float *query_scales_ = nullptr, *key_scales_ = nullptr, *state_scales_ = nullptr, *factors_ = nullptr;  // with scales
};

// The table for one type of elements, the feature map chosen in each call.
template <class V, class E>
class LinearTable {
  template <class Work>
  static void with(const LinearHead& head, void* scratch, const Work& work) {
    switch (head.features) {
      case LinearFeatures::elu: return work(Linear<V, E, Elu<V>>(head, scratch));
      case LinearFeatures::elu01: return work(Linear<V, E, Elu01<V>>(head, scratch));
      case LinearFeatures::relu: return work(Linear<V, E, Relu<V>>(head, scratch));
      case LinearFeatures::taylor: return work(Linear<V, E, Taylor<V>>(head, scratch));
      case LinearFeatures::polynomial2: return work(Linear<V, E, Polynomial2<V>>(head, scratch));
      case LinearFeatures::favor: return work(Linear<V, E, Favor>(head, scratch));
    }
  }
  static float* numbers(void* p) { return static_cast<float*>(p); }
  static const float* numbers(const void* p) { return static_cast<const float*>(p); }

 public:
  static constexpr LinearKernels kernels(const char* name) {
    return {
        name,
        [](const LinearHead& head) { return Linear<V, E, Taylor<V>>::scratch_size(head); },  // of any map
        [](const LinearHead& head, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.template add_keys<false>(begin, end, numbers(s), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, void* t, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.template add_keys<true>(begin, end, numbers(t), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.forward(begin, end, numbers(s), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, const void* s, const void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.read(begin, end, numbers(s), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, bool causal, void* t, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.backward_queries(begin, end, causal, numbers(t), numbers(z)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, void* r, void* y, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.add_queries(begin, end, numbers(r), numbers(y)); });
        },
        [](const LinearHead& head, int64_t begin, int64_t end, bool causal, void* r, void* y, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.backward_keys(begin, end, causal, numbers(r), numbers(y)); });
        },
        [](const LinearHead& head, void* s, void* z, void* scratch) {
          with(head, scratch, [&](auto&& on) { on.step(numbers(s), numbers(z)); });
        },
    };
  }
};

}  // namespace
}  // namespace attn::kernels
