// The backward pass of linear attention on the CPU: grad_q [N,D], grad_k [L,D] and grad_v [L,M] of one head, causal or not
// ("Transformers are RNNs", 2006.16236, Algorithm 1).
#pragma once

#include "attn/cpu/tiles.h"
#include "attn/linear/cpu/vectors/chunk.h"

namespace attn::cpu {
namespace {

// Stores the gradients of rows of q or k, given the gradients of their features in b.products. Rows from `visible` on become
// zeros.
template <class V, class E, class Map>
void write_row_gradients(LinearChunk<V, E, Map>& chunk, const RowStore<V, E>& to, int64_t count, int64_t visible, const float* x,
                         const float* phi) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  if constexpr (kHasScales<Map>) {
    // e = φ·∂φ is the gradient of the exponents ωx̃ − ‖x̃‖²/2, so the gradient of x is (eω − x̃ Σe)/D^¼.
    const float root = square_root(float(p.head_dim));
    for (int64_t i = 0; i < kChunkRows; ++i) {
      auto sum = V::zero();
      for (int64_t c = 0; c < b.features; c += V::kLanes) {
        float* grad_phi = b.products + i * b.features + c;
        const auto grad = V::keep(V::load(grad_phi), lanes_before<V>(p.feature_count, c));
        const auto e = V::mul(V::load(phi + i * b.features + c), grad);
        V::store(grad_phi, e);
        sum = V::add(sum, e);
      }
      b.lanes[i] = -V::sum(sum) / root;
    }
    const int64_t width = padded(p.head_dim);
    product<V, false>(b.products, b.features, 1, static_cast<const float*>(p.projection), width, kChunkRows, p.feature_count,
                      width, b.partial, width);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = 0; c < width; c += V::kLanes) {
        const auto all = V::fma(V::all(b.lanes[i]), V::load(x + i * b.dims + c), V::load(b.partial + i * width + c));
        to(i, c, i < visible ? all : V::zero());
      }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      if (i < visible) Map::gradient(x + i * b.dims, phi + i * b.features, b.products + i * b.features, p.head_dim, b.row);
      for (int64_t c = 0; c < p.head_dim; c += V::kLanes) to(i, c, i < visible ? V::load(b.row + c) : V::zero());
    }
  }
}

// sums[i] = Σ_f φ(q)[i][f] · b.products[i][f] for the 16 rows. Columns of the products beyond the features are undefined, and are
// left out.
template <class V, class E, class Map>
void sum_products(const LinearChunk<V, E, Map>& chunk, float* sums) {
  const auto& b = chunk.b;
  constexpr int kRows = 4;
  for (int i = 0; i < kChunkRows; i += kRows) {
    typename V::F sum[kRows] = {V::zero(), V::zero(), V::zero(), V::zero()};
    for (int64_t c = 0; c < b.features; c += V::kLanes) {
      const auto columns = lanes_before<V>(chunk.p.feature_count, c);
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) {
        const int64_t at = (i + r) * b.features + c;
        sum[r] = V::fma(V::load(b.phi + at), V::keep(V::load(b.products + at), columns), sum[r]);
      }
    }
    V::store_sums(sums + i, sum[0], sum[1], sum[2], sum[3], 1);
  }
}

// Adds δ times the vector of the state to the gradients of φ(q) in b.products. If causal, each query sees the keys in Z and
// those up to its own position, which are added to Z. Stores the gradients of q if the map is entrywise.
template <class V, class E, class Map>
void add_normalizer_gradients(LinearChunk<V, E, Map>& chunk, int64_t first, int64_t count, bool causal, float* z,
                              const RowStore<V, E>& to) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  const float* delta = static_cast<const float*>(p.grad_normalizer) + first;
  float z_factors[kChunkRows], key_factors[kChunkRows];  // with scales, convert Z and a key to the scale of the next state
  if constexpr (kHasScales<Map>)
    for (int64_t i = 0; causal && i < count; ++i) {
      z_factors[i] = scalar_exp<V>(b.state_scales[i] - b.state_scales[i + 1]);
      key_factors[i] = scalar_exp<V>(b.key_scales[i] - b.state_scales[i + 1]);
    }
  for (int64_t c = 0; c < b.features; c += V::kLanes) {
    auto seen = V::load(z + c);
    for (int64_t i = 0; i < count; ++i) {
      if (causal) {
        const auto kappa = V::load(b.kappa + i * b.features + c);
        if constexpr (kHasScales<Map>) seen = V::fma(kappa, V::all(key_factors[i]), V::mul(seen, V::all(z_factors[i])));
        else seen = V::add(seen, kappa);
      }
      float* grad_phi = b.products + i * b.features + c;
      const auto g = V::fma(V::all(delta[i]), seen, V::load(grad_phi));
      if constexpr (Map::kEntrywise)
        to(i, c, Map::gradient(chunk.entries(p.q, first + i, c), V::load(b.phi + i * b.features + c), g));
      else V::store(grad_phi, g);
    }
    if (causal) V::store(z + c, seen);
  }
}

// b.partial[i][f] = Σ_m b.left[m][i] · r[f][m]. The sum runs along the rows of R, so the product is computed in transposed form,
// with the 16 positions as lanes, like scores, and is then transposed.
template <class V, class E, class Map>
void read_transposed(LinearChunk<V, E, Map>& chunk, const float* r, int64_t m) {
  auto& b = chunk.b;
  scores_of_rows<V>(b.left, r, b.values, b.features, m, b.products);
  for (int64_t f = 0; f < b.features; f += V::kLanes)
    for (int t = 0; t < kChunkRows; t += V::kLanes)
      V::transpose(b.products + f * kChunkRows + t, kChunkRows, b.partial + t * b.features + f, b.features);
}

// b.scores[i][j] = g′_i · v_j + δ_i, for query i and key j.
template <class V, class E, class Map>
void score_values(LinearChunk<V, E, Map>& chunk) {
  auto& b = chunk.b;
  scores_of<V, Triangle::upper>(b.left, b.g, b.values, chunk.p.value_dim, b.scores);
  for (int i = 0; i < kChunkRows; ++i)
    for (int c = 0; c < kChunkRows; c += V::kLanes) {
      float* p = b.scores + i * kChunkRows + c;
      V::store(p, V::add(V::load(p), V::all(b.grad_normalizer[i])));
    }
  if constexpr (kHasScales<Map>) chunk.scales().template scale_scores<Triangle::upper>();
  keep_triangle<V, Triangle::upper>(b.scores);
}

// Stores the sums of a tile in rows of grad_v. Rows from `visible` on are hidden and become zeros.
template <class V, class E, class Map>
void write_value_gradients(LinearChunk<V, E, Map>& chunk, int64_t first, int64_t count, int64_t visible, const ReadTile& tile) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  const RowStore<V, E> to(p.grad_v, first, count, p.value_dim, chunk.ahead);
  if (to.takes_whole_chunk() && visible == kChunkRows) return read_rows<V, Triangle::upper>(tile, {to.floats(), to.stride});
  read_rows<V, Triangle::upper>(tile, {b.products, b.values});
  to.store_rows(b.products, b.values, visible);
}

// Adds the vector of the state, y, to the gradients of φ(k) in b.products, and stores the gradients of k. Rows from `visible`
// on are hidden and become zeros.
template <class V, class E, class Map>
void write_key_gradients(LinearChunk<V, E, Map>& chunk, int64_t first, int64_t count, int64_t visible, const float* y) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  const RowStore<V, E> to(p.grad_k, first, count, p.head_dim, chunk.ahead);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < b.features; c += V::kLanes) {
      const auto at = i * b.features + c;
      auto g = V::load(b.products + at);
      if constexpr (kHasScales<Map>) g = V::fma(V::all(b.factors[i]), V::load(y + c), g);
      else g = V::add(g, V::load(y + c));
      if constexpr (Map::kEntrywise)
        to(i, c, i < visible ? Map::gradient(chunk.entries(p.k, first + i, c), V::load(b.kappa + at), g) : V::zero());
      else V::store(b.products + at, g);
    }
  if constexpr (!Map::kEntrywise) write_row_gradients(chunk, to, count, visible, b.k, b.kappa);
}

// Writes grad_q and δ, from T and Z. If causal, adds the keys of the range to T and Z.
template <class V, class E, class Map>
void linear_backward_queries(LinearChunk<V, E, Map>& chunk, int64_t begin, int64_t end, bool causal, float* t, float* z) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  [[maybe_unused]] const auto scales = chunk.scales();
  chunk.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
    chunk.load_queries(first, count);
    chunk.load_scaled_gradients(first, count);
    transpose<V>(b.g, b.values, kChunkRows, b.values, b.left, kChunkRows);
    float shifted[kChunkRows];  // the product of g′ and the value shift
    dot_rows<V>(b.left, static_cast<const float*>(p.value_shift), p.value_dim, shifted);
    const ReadTarget target{b.products, b.features};
    if (causal) {
      chunk.load_keys(first, count);
      scores_of<V, Triangle::lower>(b.left, b.v, b.values, p.value_dim, b.scores);
      if constexpr (kHasScales<Map>) {
        scales.set_state_scales(scales.scale_of(z));
        scales.template scale_scores<Triangle::lower>();
        scales.set_factors_of_state();
        scales.multiply_by_factors(b.left, p.value_dim);
      }
      keep_triangle<V, Triangle::lower>(b.scores);
      read_rows<V, Triangle::lower>({b.left, t, p.value_dim, b.features, b.scores, b.kappa, b.features, b.partial}, target);
    } else {
      read_rows<V, Triangle::lower>({b.left, t, p.value_dim, b.features, nullptr, nullptr, 0, b.partial}, target);
    }
    // The share of ε in each normalizer. A normalizer that is infinite in float32 consists of ε.
    float epsilon_share[kChunkRows];
    for (int c = 0; c < kChunkRows; c += V::kLanes) V::store(epsilon_share + c, chunk.epsilon(c));
    for (int i = 0; i < kChunkRows; ++i)
      epsilon_share[i] = epsilon_share[i] < __builtin_inff() ? epsilon_share[i] * b.lanes[i] : 1;
    float sums[kChunkRows];
    sum_products(chunk, sums);
    float* delta = static_cast<float*>(p.grad_normalizer) + first;
    for (int64_t i = 0; i < count; ++i) delta[i] = shifted[i] * epsilon_share[i] - sums[i] * b.lanes[i];
    const RowStore<V, E> to(p.grad_q, first, count, p.head_dim, chunk.ahead);
    add_normalizer_gradients(chunk, first, count, causal, z, to);
    if constexpr (!Map::kEntrywise) write_row_gradients(chunk, to, count, count, b.q, b.phi);
    if (!causal) return;
    if constexpr (kHasScales<Map>) {
      multiply_unless_one<V>(t, b.features * b.values, scales.raise_scale(z, b.state_scales[kChunkRows]));
      scales.scale_keys(b.state_scales[kChunkRows]);
    }
    add_products_of_chunk<V>(b.v, b.values, b.kappa, b.features, b.values, b.features, t);
  });
}

// Writes grad_k and grad_v, from R and Y, from the last position to the first. If causal, adds the queries of the range to R and
// Y.
template <class V, class E, class Map>
void linear_backward_keys(LinearChunk<V, E, Map>& chunk, int64_t begin, int64_t end, bool causal, float* r, float* y) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  [[maybe_unused]] const auto scales = chunk.scales();
  chunk.ahead = -2 * kChunkRows;
  const int64_t last = begin + (end - begin - 1) / kChunkRows * kChunkRows;
  for (int64_t first = last; first >= begin; first -= kChunkRows) {
    const int64_t count = end - first < kChunkRows ? end - first : kChunkRows;
    chunk.load_keys(first, count);
    const int64_t visible = count_before(p.visible_keys, first, count);
    if (causal) {
      chunk.load_queries(first, count);
      chunk.load_scaled_gradients(first, count);
    }
    const auto f = p.feature_count, m = p.value_dim;
    // The gradient of v.
    transpose<V>(b.kappa, b.features, kChunkRows, b.features, b.left, kChunkRows);
    if (causal) {
      scores_of<V, Triangle::upper>(b.left, b.phi, b.features, f, b.scores);
      if constexpr (kHasScales<Map>) scales.template scale_scores<Triangle::upper>();
      keep_triangle<V, Triangle::upper>(b.scores);
    }
    if constexpr (kHasScales<Map>) {
      scales.set_factors([&](int c) { return V::add(V::load(b.key_scales + c), V::all(scales.scale_of(y))); });
      scales.multiply_by_factors(b.left, f);
    }
    write_value_gradients(chunk, first, count, visible,
                          {b.left, r, f, b.values, causal ? b.scores : nullptr, b.g, b.values, b.partial});
    // The gradient of k. The normalizer contributes as if v had a column of ones, and g′ a column of δ.
    transpose<V>(b.v, b.values, kChunkRows, b.values, b.left, kChunkRows);
    if (causal) score_values(chunk);
    if constexpr (kHasScales<Map>) scales.multiply_by_factors(b.left, m);
    read_transposed(chunk, r, m);
    const ReadTile tile{b.left, nullptr,    0,         b.features,      causal ? b.scores : nullptr,
                        b.phi,  b.features, b.partial, /*resumed=*/true};
    read_rows<V, Triangle::upper>(tile, {b.products, b.features});
    write_key_gradients(chunk, first, count, visible, y);
    if (causal) chunk.add_chunk_queries(r, y);
  }
}

}  // namespace
}  // namespace attn::cpu
