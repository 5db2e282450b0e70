// The scales of a chunk of positions and of its state, for feature maps that exponentiate. kernels.h defines scales.
#pragma once

#include "attn/cpu/products.h"
#include "attn/cpu/scores.h"
#include "attn/linear/cpu/vectors/scratch.h"

namespace attn::cpu {
namespace {

// How many of the `size` positions or columns that begin with `first` are before `end`.
inline int64_t count_before(int64_t end, int64_t first, int64_t size) {
  const auto rest = end - first;
  return rest < 0 ? 0 : rest > size ? size : rest;
}

// The lanes of a vector whose columns are before `end`, where the first lane is column c.
template <class V>
inline typename V::Mask lanes_before(int64_t end, int64_t c) {
  return V::first(count_before(end, c, V::kLanes));
}

inline float square_root(float x) { return __builtin_sqrtf(x); }
template <class V>
inline float scalar_exp(float x) {
  float lanes[V::kLanes];
  V::store(lanes, V::exp(V::all(x)));
  return lanes[0];
}
template <class V>
inline void multiply_unless_one(float* x, int64_t size, float factor) {
  if (factor != 1) scale_row<V>(x, size, factor);
}

// LinearScales: applies scales to the buffers b of a chunk.
template <class V>
struct LinearScales {
  LinearScratch& b;

  // The scale of the state whose vector is z.
  float& scale_of(float* z) const { return z[b.features]; }
  float scale_of(const float* z) const { return z[b.features]; }
  // Sets b.state_scales from the scale of the state before the chunk and the chunk's key scales.
  void set_state_scales(float before) const {
    b.state_scales[0] = before;
    for (int i = 0; i < kChunkRows; ++i)
      b.state_scales[i + 1] = b.key_scales[i] > b.state_scales[i] ? b.key_scales[i] : b.state_scales[i];
  }
  // Raises the scale of the state whose vector is z to at least `scale`. Returns the factor by which the caller must then
  // multiply the state.
  float raise_scale(float* z, float scale) const {
    float& current = scale_of(z);
    const float factor = scale > current ? scalar_exp<V>(current - scale) : 1;
    if (scale > current) current = scale;
    return factor;
  }

  // Sets b.factors to e^exponent, where exponent(c) is the vector of the exponents of the positions from c on.
  template <class Exponent>
  void set_factors(const Exponent& exponent) const {
    for (int c = 0; c < kChunkRows; c += V::kLanes) V::store(b.factors + c, V::exp(exponent(c)));
  }
  // Sets the factors that convert the state before the chunk to the scale of the state after each position.
  void set_factors_of_state() const {
    set_factors([&](int c) { return V::sub(V::all(b.state_scales[0]), V::load(b.state_scales + 1 + c)); });
  }
  // Multiplies x[rows][16], whose columns are the positions, by the factors.
  void multiply_by_factors(float* x, int64_t rows) const {
    for (float* end = x + rows * kChunkRows; x < end; x += kChunkRows)
      for (int c = 0; c < kChunkRows; c += V::kLanes) V::store(x + c, V::mul(V::load(x + c), V::load(b.factors + c)));
  }
  // Converts each score to the scale of the state that its query sees. The score of a key that its query does not see may become
  // infinite; keep_triangle() removes it.
  template <Triangle kTriangle>
  void scale_scores() const {
    for (int j = 0; j < kChunkRows; ++j)
      for (int c = 0; c < kChunkRows; c += V::kLanes) {
        float* p = b.scores + j * kChunkRows + c;
        const auto exponent = kTriangle == Triangle::lower ? V::sub(V::all(b.key_scales[j]), V::load(b.state_scales + 1 + c))
                                                           : V::sub(V::load(b.key_scales + c), V::all(b.state_scales[1 + j]));
        V::store(p, V::mul(V::load(p), V::exp(exponent)));
      }
  }
  // Converts all rows of φ(k) to this scale.
  void scale_keys(float scale) const {
    for (int j = 0; j < kChunkRows; ++j)
      scale_row<V>(b.kappa + j * b.features, b.features, scalar_exp<V>(b.key_scales[j] - scale));
  }
};

}  // namespace
}  // namespace attn::cpu
