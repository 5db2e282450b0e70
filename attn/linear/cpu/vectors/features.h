// The feature maps of linear attention, computed with the vectors of simd.h.
#pragma once

#include "attn/cpu/chunk_rows.h"
#include "attn/linear/cpu/feature_map_list.h"

namespace attn::cpu {
namespace {

// Entrywise maps: apply(x) is φ(x), and gradient(x, φ(x), gradient of φ(x)) is the gradient of x.
template <class V>
struct Elu {
  static constexpr auto kKind = FeatureMapKind::elu;
  static constexpr bool kEntrywise = true;
  // A NaN stays NaN, because min() and max() then return their second argument.
  static typename V::F apply(typename V::F x) { return V::add(V::max(V::zero(), x), V::exp_nonpositive(V::min(V::zero(), x))); }
  static typename V::F gradient(typename V::F, typename V::F phi, typename V::F g) { return V::mul(g, V::min(V::all(1), phi)); }
};
template <class V>
struct Elu01 {
  static constexpr auto kKind = FeatureMapKind::elu01;
  static constexpr bool kEntrywise = true;
  static typename V::F apply(typename V::F x) {
    const auto below = V::fma(V::all(0.1f), V::exp_nonpositive(V::min(V::zero(), x)), V::all(0.9f));
    return V::choose(V::greater(x, V::zero()), V::add(x, V::all(1)), below);
  }
  static typename V::F gradient(typename V::F x, typename V::F phi, typename V::F g) {
    return V::mul(g, V::choose(V::greater(x, V::zero()), V::all(1), V::sub(phi, V::all(0.9f))));
  }
};
template <class V>
struct Relu {
  static constexpr auto kKind = FeatureMapKind::relu;
  static constexpr bool kEntrywise = true;
  // A NaN stays NaN, because max() then returns its second argument.
  static typename V::F apply(typename V::F x) { return V::max(V::zero(), x); }
  static typename V::F gradient(typename V::F x, typename V::F, typename V::F g) {
    return V::choose(V::greater(x, V::zero()), g, V::zero());
  }
};

// Maps of whole rows: apply() and gradient() process one row. At least kPadding zeros follow the `dim` entries of x. φ has room
// for at least kPadding numbers after the features; the functions may write anything there.
template <class V>
struct Taylor {
  static constexpr auto kKind = FeatureMapKind::taylor;
  static constexpr bool kEntrywise = false;
  static constexpr float kMinLength = 1e-12f;

  static float length_of(const float* x, int64_t dim) {
    const float length = __builtin_sqrtf(dot<V>(x, x, padded(dim)));
    return length < kMinLength ? kMinLength : length;
  }
  static void apply(const float* x, int64_t dim, float* phi) {
    const auto length = V::all(length_of(x, dim));
    phi[0] = 1;
    for (int64_t c = 0; c < dim; c += V::kLanes) V::store(phi + 1 + c, V::div(V::load(x + c), length));
  }
  static void gradient(const float* x, const float* phi, const float* g, int64_t dim, float* to) {
    const float factor = 1 / length_of(x, dim);
    float along = 0;
    for (int64_t d = 0; d < dim; ++d) along += phi[1 + d] * g[1 + d];
    for (int64_t d = 0; d < dim; ++d) to[d] = (g[1 + d] - phi[1 + d] * along) * factor;
  }
};
template <class V>
struct Polynomial2 {
  static constexpr auto kKind = FeatureMapKind::polynomial2;
  static constexpr bool kEntrywise = false;
  static constexpr float kRootHalf = 0.70710678f;

  // With x̃ = x/D^¼ the features are 1, x̃, and then for each a the products x̃_a x̃_b with b ≥ a, where x̃_a² is multiplied by √½.
  static float scale_of(int64_t dim) { return 1 / __builtin_sqrtf(__builtin_sqrtf(float(dim))); }
  static void apply(const float* x, int64_t dim, float* phi) {
    const auto scale = V::all(scale_of(dim));
    phi[0] = 1;
    for (int64_t c = 0; c < dim; c += V::kLanes) V::store(phi + 1 + c, V::mul(V::load(x + c), scale));
    float* products = phi + 1 + dim;
    for (int64_t a = 0; a < dim; ++a) {
      const auto factor = V::mul(V::all(x[a]), V::mul(scale, scale));
      for (int64_t b = a; b < dim; b += V::kLanes) V::store(products + b - a, V::mul(V::load(x + b), factor));
      products[0] *= kRootHalf;
      products += dim - a;
    }
  }
  static void gradient(const float* x, const float*, const float* g, int64_t dim, float* to) {
    const float scale = scale_of(dim);
    for (int64_t d = 0; d < dim; ++d) to[d] = g[1 + d];
    const float* grad_products = g + 1 + dim;
    for (int64_t a = 0; a < dim; ++a) {
      const float at_a = x[a] * scale;
      float sum = grad_products[0] * at_a * (2 * kRootHalf);
      auto sums = V::zero();
      int64_t b = a + 1;
      for (; b + V::kLanes <= dim; b += V::kLanes) {
        const auto h = V::load(grad_products + b - a);
        sums = V::fma(h, V::load(x + b), sums);
        V::store(to + b, V::fma(h, V::all(at_a), V::load(to + b)));
      }
      for (; b < dim; ++b) {
        sum += grad_products[b - a] * x[b] * scale;
        to[b] += grad_products[b - a] * at_a;
      }
      to[a] += sum + V::sum(sums) * scale;
      grad_products += dim - a;
    }
    for (int64_t d = 0; d < dim; ++d) to[d] *= scale;
  }
};

// FAVOR+: exp(ωx̃ − ‖x̃‖²/2)/√F, with the row's largest exponent as its scale. LinearChunk computes it for all rows of a chunk at
// once.
struct Favor {
  static constexpr auto kKind = FeatureMapKind::favor;
  static constexpr bool kEntrywise = false;
};

// All feature maps that these kernels compute.
template <class V>
using FeatureMaps = FeatureMapList<Elu<V>, Elu01<V>, Relu<V>, Taylor<V>, Polynomial2<V>, Favor>;

// Writes the features of `count` rows, beginning with row `begin`, to phi[height][width], with zeros in columns from `features`
// on and in rows from `count` on. Maps of whole rows also store the rows themselves in x[height][x_width]. Prefetches the rows
// that are `ahead` positions further on.
template <class V, class E, class Map>
[[gnu::noinline]] void apply_map(const Rows& rows, int64_t begin, int64_t count, int64_t dim, int64_t features, int64_t width,
                                 int64_t ahead, float* x, int64_t x_width, float* phi, int64_t height = kChunkRows) {
  if constexpr (!Map::kEntrywise) load_rows<V, E>(rows, begin, count, dim, x, x_width, ahead, height);
  const E* from = static_cast<const E*>(rows.data) + begin * rows.stride;
  const int64_t whole = features / V::kLanes * V::kLanes;
  const auto rest = V::first(features - whole);
  for (int64_t t = 0; t < count; ++t, from += rows.stride, x += x_width, phi += width) {
    int64_t c = whole;
    if constexpr (Map::kEntrywise) {
      prefetch_row<0>(from + ahead * rows.stride, dim);
      for (c = 0; c < whole; c += V::kLanes) V::store(phi + c, Map::apply(V::load(from + c)));
      if (c < features) V::store(phi + c, Map::apply(V::load(from + c, rest)));
    } else {
      Map::apply(x, dim, phi);
    }
    if (c < features) V::store(phi + c, V::keep(V::load(phi + c), rest)), c += V::kLanes;
    for (; c < width; c += V::kLanes) V::store(phi + c, V::zero());
  }
  for (float* end = phi + (height - count) * width; phi < end; phi += V::kLanes) V::store(phi, V::zero());
}

}  // namespace
}  // namespace attn::cpu
