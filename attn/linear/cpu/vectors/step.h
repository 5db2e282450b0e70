// A decoding step of linear attention: adds a token to S [F,M] and Z [F], and computes its output [M]. Each row of S is read and
// written once, and its part of the output is computed while it is in registers.
#pragma once

#include "attn/linear/cpu/vectors/chunk.h"

namespace attn::cpu {
namespace {

// x + old · shrink, where shrink is 1 for maps without scales.
template <class V, class Map>
typename V::F add_shrunk(typename V::F x, typename V::F old, typename V::F shrink) {
  if constexpr (kHasScales<Map>) return V::fma(old, shrink, x);
  else return V::add(old, x);
}

// Updates kColumns vectors of columns of S, beginning with column m, and writes the same columns of the output. If kColumns is
// 1, `mask` selects the columns that exist. S is multiplied by `shrink`, with scales, and the output by `factor`.
template <int kColumns, class V, class E, class Map>
void step_columns(LinearChunk<V, E, Map>& chunk, float* s, int64_t m, typename V::Mask mask, typename V::F shrink,
                  typename V::F factor, const RowStore<V, E>& to) {
  const auto& b = chunk.b;
  typename V::F v[kColumns], sum[kColumns];
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
    v[c] = V::load(b.v + m + c * V::kLanes);
    sum[c] = V::zero();
  }
  for (int64_t d = 0; d < chunk.p.feature_count; ++d) {
    const auto kappa = V::all(b.kappa[d]), phi = V::all(b.phi[d]);
    float* row = s + d * chunk.p.value_dim + m;
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      float* p = row + c * V::kLanes;
      auto x = kColumns > 1 ? V::load(p) : V::load(p, mask);
      if constexpr (kHasScales<Map>) x = V::mul(x, shrink);
      x = V::fma(kappa, v[c], x);
      if constexpr (kColumns > 1) V::store(p, x);
      else V::store(p, x, mask);
      sum[c] = V::fma(phi, x, sum[c]);
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) to(0, m + c * V::kLanes, V::mul(sum[c], factor));
}

template <class V, class E, class Map>
void linear_step(LinearChunk<V, E, Map>& chunk, float* s, float* z) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  load_rows<V, E>(p.v, 0, 1, p.value_dim, b.v, b.values, 0, 1);
  chunk.ahead = 0;
  chunk.load_features(p.q, 0, 1, 1, b.q, b.phi, b.query_scales);
  chunk.load_features(p.k, 0, 1, 1, b.k, b.kappa, b.key_scales);
  float epsilon = float(p.epsilon), shrink = 1;
  if constexpr (kHasScales<Map>) {
    float& scale = z[p.feature_count];
    const float to = b.key_scales[0] > scale ? b.key_scales[0] : scale;
    shrink = scalar_exp<V>(scale - to);
    epsilon *= scalar_exp<V>(-b.query_scales[0] - to);
    scale_row<V>(b.kappa, b.features, scalar_exp<V>(b.key_scales[0] - to));
    scale = to;
  }
  auto total = V::zero();
  for (int64_t c = 0; c < p.feature_count; c += V::kLanes) {
    const auto mask = lanes_before<V>(p.feature_count, c);
    const auto sum = add_shrunk<V, Map>(V::load(b.kappa + c), V::load(z + c, mask), V::all(shrink));
    V::store(z + c, sum, mask);
    total = V::fma(V::load(b.phi + c), sum, total);
  }
  const auto factor = V::all(1 / (V::sum(total) + epsilon));
  const RowStore<V, E> to(p.output, 0, 1, p.value_dim, 0);
  const auto every = V::first(V::kLanes);
  int64_t m = 0;
  for (; m + 4 * V::kLanes <= p.value_dim; m += 4 * V::kLanes) step_columns<4>(chunk, s, m, every, V::all(shrink), factor, to);
  for (; m + 2 * V::kLanes <= p.value_dim; m += 2 * V::kLanes) step_columns<2>(chunk, s, m, every, V::all(shrink), factor, to);
  for (; m < p.value_dim; m += V::kLanes)
    step_columns<1>(chunk, s, m, lanes_before<V>(p.value_dim, m), V::all(shrink), factor, to);
}

}  // namespace
}  // namespace attn::cpu
