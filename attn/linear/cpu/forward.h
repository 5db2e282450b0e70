// The forward pass of linear attention on the CPU: the output [N,M] and the normalizers [N] of one head, causal or not.
// attn/linear/README.md explains the computation for a chunk of 16 positions.
#pragma once

#include "attn/cpu/tiles.h"
#include "attn/linear/cpu/chunk.h"

namespace attn::cpu {
namespace {

template <class V, class E, class Map>
class LinearForward : public LinearChunk<V, E, Map> {
  using Base = LinearChunk<V, E, Map>;
  using Base::ahead_;
  using Base::b_;
  using Base::epsilon;
  using Base::for_each_chunk;
  using Base::kNormalizers;
  using Base::kScales;
  using Base::load_keys;
  using Base::load_queries;
  using Base::multiply_by_factors;
  using Base::p_;
  using Base::scale_of;
  using Base::set_factors_of_state;
  using Base::set_state_scales;
  using Base::value_rows;
  using Base::values_in_place;

 public:
  using Base::Base;

  // The causal pass: each query sees the keys in S and Z and those of the range up to its own position. Adds the keys to S and Z.
  void forward(int64_t begin, int64_t end, float* s, float* z) {
    for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      load_queries(first, count);
      transpose<V>(b_.phi, b_.features, kChunkRows, b_.features, b_.left, kChunkRows);
      const bool in_place = values_in_place(first, count);
      load_keys(first, count, !in_place);
      const float* values = in_place ? value_rows(first) : b_.v;
      const int64_t value_stride = in_place ? p_.v.stride : b_.values;
      scores_of<V>(b_.left, b_.kappa, b_.features, p_.feature_count, b_.scores, z, b_.lanes);
      if constexpr (kScales) {
        set_state_scales(scale_of(z));
        this->template scale_scores<Triangle::lower>();
        set_factors_of_state();
        multiply_by_factors(b_.lanes, 1), multiply_by_factors(b_.left, p_.feature_count);
      }
      keep_triangle<V, Triangle::lower>(b_.scores);
      // The normalizer is φ·Z, which scores_of() left in b_.lanes, plus the sum of the scores plus ε.
      for (int c = 0; c < kChunkRows; c += V::kLanes) {
        auto sum = V::add(V::load(b_.lanes + c), epsilon(c));
        for (int j = 0; j < kChunkRows; ++j) sum = V::add(sum, V::load(b_.scores + j * kChunkRows + c));
        V::store(b_.lanes + c, sum);
      }
      write_outputs<Triangle::lower>(first, count,
                                     {b_.left, s, p_.feature_count, b_.values, b_.scores, values, value_stride, b_.partial});
      this->template add_chunk_keys<false>(s, z, values, value_stride);
    });
  }

  // Each query sees all keys in S and Z.
  void read(int64_t begin, int64_t end, const float* s, const float* z) {
    for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      load_queries(first, count);
      transpose<V>(b_.phi, b_.features, kChunkRows, b_.features, b_.left, kChunkRows);
      dot_rows<V>(b_.left, z, p_.feature_count, b_.lanes);
      if constexpr (kScales)
        for (int i = 0; i <= kChunkRows; ++i) b_.state_scales[i] = scale_of(z);
      for (int c = 0; c < kChunkRows; c += V::kLanes) V::store(b_.lanes + c, V::add(V::load(b_.lanes + c), epsilon(c)));
      write_outputs<Triangle::lower>(first, count, {b_.left, s, p_.feature_count, b_.values, nullptr, nullptr, 0, b_.partial});
    });
  }

 private:
  // Writes the normalizers, which are in b_.lanes, and the outputs.
  template <Triangle kTriangle>
  void write_outputs(int64_t first, int64_t count, const ReadTile& tile) {
    float* normalizer = static_cast<float*>(p_.normalizer) + first * kNormalizers;
    for (int64_t i = 0; i < count; ++i) {
      normalizer[i * kNormalizers] = b_.lanes[i];
      if constexpr (kScales) normalizer[i * kNormalizers + 1] = b_.state_scales[1 + i];
    }
    for (int c = 0; c < kChunkRows; c += V::kLanes) V::store(b_.lanes + c, V::div(V::all(1), V::load(b_.lanes + c)));
    const RowStore<V, E> to(p_.output, first, count, p_.value_dim, ahead_);
    if (to.takes_whole_chunk()) return read_rows<V, kTriangle>(tile, {to.floats(), to.stride, b_.lanes});
    read_rows<V, kTriangle>(tile, {b_.products, b_.values, b_.lanes});
    to.store_rows(b_.products, b_.values, count);
  }
};

}  // namespace
}  // namespace attn::cpu
