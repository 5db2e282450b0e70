// The backward pass of linear attention on the CPU: grad_q [N,D], grad_k [L,D] and grad_v [L,M] of one head, causal or not
// ("Transformers are RNNs", 2006.16236, Algorithm 1).
#pragma once

#include "attn/cpu/tiles.h"
#include "attn/linear/cpu/chunk.h"

namespace attn::cpu {
namespace {

template <class V, class E, class Map>
class LinearBackward : public LinearChunk<V, E, Map> {
  using Base = LinearChunk<V, E, Map>;
  using Base::add_chunk_queries;
  using Base::ahead_;
  using Base::b_;
  using Base::entries;
  using Base::epsilon;
  using Base::for_each_chunk;
  using Base::kScales;
  using Base::load_keys;
  using Base::load_queries;
  using Base::load_scaled_gradients;
  using Base::multiply;
  using Base::multiply_by_factors;
  using Base::p_;
  using Base::raise_scale;
  using Base::scalar_exp;
  using Base::scale_keys;
  using Base::scale_of;
  using Base::set_factors;
  using Base::set_factors_of_state;
  using Base::set_state_scales;
  using Base::square_root;

 public:
  using Base::Base;

  // Writes grad_q and δ, from T and Z. If causal, adds the keys of the range to T and Z.
  void backward_queries(int64_t begin, int64_t end, bool causal, float* t, float* z) {
    for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      load_queries(first, count);
      load_scaled_gradients(first, count);
      transpose<V>(b_.g, b_.values, kChunkRows, b_.values, b_.left, kChunkRows);
      float shifted[kChunkRows];  // the product of g′ and the value shift
      dot_rows<V>(b_.left, static_cast<const float*>(p_.value_shift), p_.value_dim, shifted);
      const ReadTarget target{b_.products, b_.features};
      if (causal) {
        load_keys(first, count);
        scores_of<V, Triangle::lower>(b_.left, b_.v, b_.values, p_.value_dim, b_.scores);
        if constexpr (kScales) {
          set_state_scales(scale_of(z));
          this->template scale_scores<Triangle::lower>();
          set_factors_of_state();
          multiply_by_factors(b_.left, p_.value_dim);
        }
        keep_triangle<V, Triangle::lower>(b_.scores);
        read_rows<V, Triangle::lower>({b_.left, t, p_.value_dim, b_.features, b_.scores, b_.kappa, b_.features, b_.partial},
                                      target);
      } else {
        read_rows<V, Triangle::lower>({b_.left, t, p_.value_dim, b_.features, nullptr, nullptr, 0, b_.partial}, target);
      }
      // The share of each normalizer that is ε. A normalizer beyond the range of float32 is ε alone.
      float epsilon_share[kChunkRows];
      for (int c = 0; c < kChunkRows; c += V::kLanes) V::store(epsilon_share + c, epsilon(c));
      for (int i = 0; i < kChunkRows; ++i)
        epsilon_share[i] = epsilon_share[i] < __builtin_inff() ? epsilon_share[i] * b_.lanes[i] : 1;
      float sums[kChunkRows];
      sum_products(b_.phi, b_.products, sums);
      float* delta = static_cast<float*>(p_.grad_normalizer) + first;
      for (int64_t i = 0; i < count; ++i) delta[i] = shifted[i] * epsilon_share[i] - sums[i] * b_.lanes[i];
      const RowStore<V, E> to(p_.grad_q, first, count, p_.head_dim, ahead_);
      add_normalizer_gradients(first, count, causal, z, to);
      if constexpr (!Map::kEntrywise) write_row_gradients(to, count, count, b_.q, b_.phi);
      if (!causal) return;
      if constexpr (kScales) {
        multiply(t, b_.features * b_.values, raise_scale(z, b_.state_scales[kChunkRows]));
        scale_keys(b_.state_scales[kChunkRows]);
      }
      add_products_of_chunk<V>(b_.v, b_.values, b_.kappa, b_.features, b_.values, b_.features, t);
    });
  }

  // Writes grad_k and grad_v, from R and Y, going back over the positions. If causal, adds the queries of the range to R and Y.
  void backward_keys(int64_t begin, int64_t end, bool causal, float* r, float* y) {
    ahead_ = -2 * kChunkRows;
    const int64_t last = begin + (end - begin - 1) / kChunkRows * kChunkRows;
    for (int64_t first = last; first >= begin; first -= kChunkRows) {
      const int64_t count = end - first < kChunkRows ? end - first : kChunkRows;
      load_keys(first, count);
      const int64_t visible = count_before(p_.visible_keys, first, count);
      if (causal) {
        load_queries(first, count);
        load_scaled_gradients(first, count);
      }
      const auto f = p_.feature_count, m = p_.value_dim;
      // The gradient of v.
      transpose<V>(b_.kappa, b_.features, kChunkRows, b_.features, b_.left, kChunkRows);
      if (causal) {
        scores_of<V, Triangle::upper>(b_.left, b_.phi, b_.features, f, b_.scores);
        if constexpr (kScales) this->template scale_scores<Triangle::upper>();
        keep_triangle<V, Triangle::upper>(b_.scores);
      }
      if constexpr (kScales) {
        set_factors([&](int c) { return V::add(V::load(b_.key_scales + c), V::all(scale_of(y))); });
        multiply_by_factors(b_.left, f);
      }
      write_value_gradients(first, count, visible,
                            {b_.left, r, f, b_.values, causal ? b_.scores : nullptr, b_.g, b_.values, b_.partial});
      // The gradient of k. The normalizer contributes as if v had a column of ones, and g′ a column of δ.
      transpose<V>(b_.v, b_.values, kChunkRows, b_.values, b_.left, kChunkRows);
      if (causal) score_values();
      if constexpr (kScales) multiply_by_factors(b_.left, m);
      read_transposed(r, m);
      const ReadTile tile{b_.left, nullptr,     0,          b_.features,     causal ? b_.scores : nullptr,
                          b_.phi,  b_.features, b_.partial, /*resumed=*/true};
      read_rows<V, Triangle::upper>(tile, {b_.products, b_.features});
      write_key_gradients(first, count, visible, y);
      if (causal) add_chunk_queries(r, y);
    }
  }

 private:
  // sums[i] = Σ_f a[i][f] · b[i][f] for the 16 rows, where b has numbers without meaning in columns beyond the features.
  void sum_products(const float* a, const float* b, float* sums) const {
    constexpr int kRows = 4;
    for (int i = 0; i < kChunkRows; i += kRows) {
      typename V::F sum[kRows] = {V::zero(), V::zero(), V::zero(), V::zero()};
      for (int64_t c = 0; c < b_.features; c += V::kLanes) {
        const auto columns = lanes_before<V>(p_.feature_count, c);
#pragma GCC unroll 4
        for (int64_t r = 0; r < kRows; ++r) {
          const int64_t at = (i + r) * b_.features + c;
          sum[r] = V::fma(V::load(a + at), V::keep(V::load(b + at), columns), sum[r]);
        }
      }
      V::store_sums(sums + i, sum[0], sum[1], sum[2], sum[3], 1);
    }
  }

  // Adds δ times the vector of the state to the gradients of φ(q) in b_.products. If causal, each query sees the keys in Z and
  // those up to its own position, which are added to Z. Stores the gradients of q if the map is entrywise.
  void add_normalizer_gradients(int64_t first, int64_t count, bool causal, float* z, const RowStore<V, E>& to) {
    const float* delta = static_cast<const float*>(p_.grad_normalizer) + first;
    float z_factors[kChunkRows], key_factors[kChunkRows];  // with scales, to make Z and a key relative to the next scale
    if constexpr (kScales)
      for (int64_t i = 0; causal && i < count; ++i) {
        z_factors[i] = scalar_exp(b_.state_scales[i] - b_.state_scales[i + 1]);
        key_factors[i] = scalar_exp(b_.key_scales[i] - b_.state_scales[i + 1]);
      }
    for (int64_t c = 0; c < b_.features; c += V::kLanes) {
      auto seen = V::load(z + c);
      for (int64_t i = 0; i < count; ++i) {
        if (causal) {
          const auto kappa = V::load(b_.kappa + i * b_.features + c);
          if constexpr (kScales) seen = V::fma(kappa, V::all(key_factors[i]), V::mul(seen, V::all(z_factors[i])));
          else seen = V::add(seen, kappa);
        }
        float* grad_phi = b_.products + i * b_.features + c;
        const auto g = V::fma(V::all(delta[i]), seen, V::load(grad_phi));
        if constexpr (Map::kEntrywise)
          to(i, c, Map::gradient(entries(p_.q, first + i, c), V::load(b_.phi + i * b_.features + c), g));
        else V::store(grad_phi, g);
      }
      if (causal) V::store(z + c, seen);
    }
  }

  // b_.partial[i][f] = Σ_m b_.left[m][i] · r[f][m]. The sum is along the rows of R, so the product is computed in transposed
  // form, with the 16 positions as lanes, like scores, and then transposed.
  void read_transposed(const float* r, int64_t m) {
    scores_of_rows<V>(b_.left, r, b_.values, b_.features, m, b_.products);
    for (int64_t f = 0; f < b_.features; f += V::kLanes)
      for (int t = 0; t < kChunkRows; t += V::kLanes)
        V::transpose(b_.products + f * kChunkRows + t, kChunkRows, b_.partial + t * b_.features + f, b_.features);
  }

  // b_.scores[i][j] = g′_i · v_j + δ_i, for query i and key j.
  void score_values() {
    scores_of<V, Triangle::upper>(b_.left, b_.g, b_.values, p_.value_dim, b_.scores);
    for (int i = 0; i < kChunkRows; ++i)
      for (int c = 0; c < kChunkRows; c += V::kLanes) {
        float* p = b_.scores + i * kChunkRows + c;
        V::store(p, V::add(V::load(p), V::all(b_.grad_normalizer[i])));
      }
    if constexpr (kScales) this->template scale_scores<Triangle::upper>();
    keep_triangle<V, Triangle::upper>(b_.scores);
  }

  // Stores the sums of a tile in rows of grad_v. Rows from `visible` on are hidden and become zeros.
  void write_value_gradients(int64_t first, int64_t count, int64_t visible, const ReadTile& tile) {
    const RowStore<V, E> to(p_.grad_v, first, count, p_.value_dim, ahead_);
    if (to.takes_whole_chunk() && visible == kChunkRows) return read_rows<V, Triangle::upper>(tile, {to.floats(), to.stride});
    read_rows<V, Triangle::upper>(tile, {b_.products, b_.values});
    to.store_rows(b_.products, b_.values, visible);
  }

  // Adds the vector of the state, y, to the gradients of φ(k) in b_.products, and stores the gradients of k. Rows from `visible`
  // on are hidden and become zeros.
  void write_key_gradients(int64_t first, int64_t count, int64_t visible, const float* y) {
    const RowStore<V, E> to(p_.grad_k, first, count, p_.head_dim, ahead_);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = 0; c < b_.features; c += V::kLanes) {
        const auto at = i * b_.features + c;
        auto g = V::load(b_.products + at);
        if constexpr (kScales) g = V::fma(V::all(b_.factors[i]), V::load(y + c), g);
        else g = V::add(g, V::load(y + c));
        if constexpr (Map::kEntrywise)
          to(i, c, i < visible ? Map::gradient(entries(p_.k, first + i, c), V::load(b_.kappa + at), g) : V::zero());
        else V::store(b_.products + at, g);
      }
    if constexpr (!Map::kEntrywise) write_row_gradients(to, count, visible, b_.k, b_.kappa);
  }

  // Stores the gradients of rows of q or k, given the gradients of their features in b_.products. Rows from `visible` on become
  // zeros.
  void write_row_gradients(const RowStore<V, E>& to, int64_t count, int64_t visible, const float* x, const float* phi) {
    if constexpr (kScales) {
      // e = φ·∂φ is the gradient of the exponents ωx̃ − ‖x̃‖²/2, so the gradient of x is (eω − x̃ Σe)/D^¼.
      const float root = square_root(float(p_.head_dim));
      for (int64_t i = 0; i < kChunkRows; ++i) {
        auto sum = V::zero();
        for (int64_t c = 0; c < b_.features; c += V::kLanes) {
          float* p = b_.products + i * b_.features + c;
          const auto e = V::mul(V::load(phi + i * b_.features + c), V::keep(V::load(p), lanes_before<V>(p_.feature_count, c)));
          V::store(p, e);
          sum = V::add(sum, e);
        }
        b_.lanes[i] = -V::sum(sum) / root;
      }
      const int64_t width = padded(p_.head_dim);
      product<V, false>(b_.products, b_.features, 1, static_cast<const float*>(p_.projection), width, kChunkRows,
                        p_.feature_count, width, b_.partial, width);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < width; c += V::kLanes) {
          const auto all = V::fma(V::all(b_.lanes[i]), V::load(x + i * b_.dims + c), V::load(b_.partial + i * width + c));
          to(i, c, i < visible ? all : V::zero());
        }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        if (i < visible)
          Map::gradient(x + i * b_.dims, phi + i * b_.features, b_.products + i * b_.features, p_.head_dim, b_.row);
        for (int64_t c = 0; c < p_.head_dim; c += V::kLanes) to(i, c, i < visible ? V::load(b_.row + c) : V::zero());
      }
    }
  }
};

}  // namespace
}  // namespace attn::cpu
