// One decoding step of linear attention on the CPU: adds a token to S [F,M] and Z [F] and computes its output [M]. Each row of S
// is read and written once, and its part of the output is computed while it is in registers.
#pragma once

#include "attn/linear/cpu/chunk.h"

namespace attn::cpu {
namespace {

template <class V, class E, class Map>
class LinearStep : public LinearChunk<V, E, Map> {
  using Base = LinearChunk<V, E, Map>;
  using Base::ahead_;
  using Base::b_;
  using Base::kScales;
  using Base::load_features;
  using Base::p_;
  using Base::scalar_exp;

 public:
  using Base::Base;

  void step(float* s, float* z) {
    load_rows<V, E>(p_.v, 0, 1, p_.value_dim, b_.v, b_.values, 0, 1);
    ahead_ = 0;
    load_features(p_.q, 0, 1, 1, b_.q, b_.phi, b_.query_scales);
    load_features(p_.k, 0, 1, 1, b_.k, b_.kappa, b_.key_scales);
    float epsilon = float(p_.epsilon), shrink = 1;
    if constexpr (kScales) {
      float& scale = z[p_.feature_count];
      const float to = b_.key_scales[0] > scale ? b_.key_scales[0] : scale;
      shrink = scalar_exp(scale - to);
      epsilon *= scalar_exp(-b_.query_scales[0] - to);
      scale_row<V>(b_.kappa, b_.features, scalar_exp(b_.key_scales[0] - to));
      scale = to;
    }
    auto total = V::zero();
    for (int64_t c = 0; c < p_.feature_count; c += V::kLanes) {
      const auto mask = lanes_before<V>(p_.feature_count, c);
      const auto sum = add_shrunk(V::load(b_.kappa + c), V::load(z + c, mask), V::all(shrink));
      V::store(z + c, sum, mask);
      total = V::fma(V::load(b_.phi + c), sum, total);
    }
    const auto factor = V::all(1 / (V::sum(total) + epsilon));
    const RowStore<V, E> to(p_.output, 0, 1, p_.value_dim, 0);
    const auto every = V::first(V::kLanes);
    int64_t m = 0;
    for (; m + 4 * V::kLanes <= p_.value_dim; m += 4 * V::kLanes) step_columns<4>(s, m, every, V::all(shrink), factor, to);
    for (; m + 2 * V::kLanes <= p_.value_dim; m += 2 * V::kLanes) step_columns<2>(s, m, every, V::all(shrink), factor, to);
    for (; m < p_.value_dim; m += V::kLanes) step_columns<1>(s, m, lanes_before<V>(p_.value_dim, m), V::all(shrink), factor, to);
  }

 private:
  // Updates kColumns vectors of columns of S, beginning with column m, and writes the same columns of the output. If kColumns is
  // 1, `mask` selects the columns that exist.
  template <int kColumns>
  void step_columns(float* s, int64_t m, typename V::Mask mask, typename V::F shrink, typename V::F factor,
                    const RowStore<V, E>& to) {
    typename V::F v[kColumns], sum[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      v[c] = V::load(b_.v + m + c * V::kLanes);
      sum[c] = V::zero();
    }
    for (int64_t d = 0; d < p_.feature_count; ++d) {
      const auto kappa = V::all(b_.kappa[d]), phi = V::all(b_.phi[d]);
      float* row = s + d * p_.value_dim + m;
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        float* p = row + c * V::kLanes;
        auto x = kColumns > 1 ? V::load(p) : V::load(p, mask);
        if constexpr (kScales) x = V::mul(x, shrink);
        x = V::fma(kappa, v[c], x);
        if constexpr (kColumns > 1) V::store(p, x);
        else V::store(p, x, mask);
        sum[c] = V::fma(phi, x, sum[c]);
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) to(0, m + c * V::kLanes, V::mul(sum[c], factor));
  }

  // x + old · shrink, where shrink is 1 for maps without scales.
  static typename V::F add_shrunk(typename V::F x, typename V::F old, typename V::F shrink) {
    if constexpr (kScales) return V::fma(old, shrink, x);
    else return V::add(old, x);
  }
};

}  // namespace
}  // namespace attn::cpu
