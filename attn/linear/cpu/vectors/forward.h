// The forward pass of linear attention on the CPU: the output [N,M] and the normalizers [N] of one head, causal or not.
// attn/linear/README.md explains the computation for a chunk of 16 positions.
#pragma once

#include "attn/cpu/tiles.h"
#include "attn/linear/cpu/vectors/chunk.h"

namespace attn::cpu {
namespace {

// Writes the normalizers, which are in b.lanes, and the outputs, which are the numbers of the tile divided by them.
template <Triangle kTriangle, class V, class E, class Map>
void write_outputs(LinearChunk<V, E, Map>& chunk, int64_t first, int64_t count, const ReadTile& tile) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  float* normalizer = static_cast<float*>(p.normalizer) + first * kNormalizers<Map>;
  for (int64_t i = 0; i < count; ++i) {
    normalizer[i * kNormalizers<Map>] = b.lanes[i];
    if constexpr (kHasScales<Map>) normalizer[i * kNormalizers<Map> + 1] = b.state_scales[1 + i];
  }
  for (int c = 0; c < kChunkRows; c += V::kLanes) V::store(b.lanes + c, V::div(V::all(1), V::load(b.lanes + c)));
  const RowStore<V, E> to(p.output, first, count, p.value_dim, chunk.ahead);
  if (to.takes_whole_chunk()) return read_rows<V, kTriangle>(tile, {to.floats(), to.stride, b.lanes});
  read_rows<V, kTriangle>(tile, {b.products, b.values, b.lanes});
  to.store_rows(b.products, b.values, count);
}

// The causal pass: each query sees the keys in S and Z and those of the range up to its own position. Adds the keys to S and Z.
template <class V, class E, class Map>
void linear_forward(LinearChunk<V, E, Map>& chunk, int64_t begin, int64_t end, float* s, float* z) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  [[maybe_unused]] const auto scales = chunk.scales();
  chunk.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
    chunk.load_queries(first, count);
    transpose<V>(b.phi, b.features, kChunkRows, b.features, b.left, kChunkRows);
    const bool in_place = chunk.values_in_place(first, count);
    chunk.load_keys(first, count, !in_place);
    const float* values = in_place ? chunk.value_rows(first) : b.v;
    const int64_t value_stride = in_place ? p.v.stride : b.values;
    scores_of<V>(b.left, b.kappa, b.features, p.feature_count, b.scores, z, b.lanes);
    if constexpr (kHasScales<Map>) {
      scales.set_state_scales(scales.scale_of(z));
      scales.template scale_scores<Triangle::lower>();
      scales.set_factors_of_state();
      scales.multiply_by_factors(b.lanes, 1), scales.multiply_by_factors(b.left, p.feature_count);
    }
    keep_triangle<V, Triangle::lower>(b.scores);
    // The normalizer is φ·Z, which scores_of() left in b.lanes, plus the sum of the scores plus ε.
    for (int c = 0; c < kChunkRows; c += V::kLanes) {
      auto sum = V::add(V::load(b.lanes + c), chunk.epsilon(c));
      for (int j = 0; j < kChunkRows; ++j) sum = V::add(sum, V::load(b.scores + j * kChunkRows + c));
      V::store(b.lanes + c, sum);
    }
    write_outputs<Triangle::lower>(chunk, first, count,
                                   {b.left, s, p.feature_count, b.values, b.scores, values, value_stride, b.partial});
    chunk.template add_chunk_keys<false>(s, z, values, value_stride);
  });
}

// Each query sees all keys in S and Z.
template <class V, class E, class Map>
void linear_read(LinearChunk<V, E, Map>& chunk, int64_t begin, int64_t end, const float* s, const float* z) {
  auto& b = chunk.b;
  const auto& p = chunk.p;
  [[maybe_unused]] const auto scales = chunk.scales();
  chunk.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
    chunk.load_queries(first, count);
    transpose<V>(b.phi, b.features, kChunkRows, b.features, b.left, kChunkRows);
    dot_rows<V>(b.left, z, p.feature_count, b.lanes);
    if constexpr (kHasScales<Map>)
      for (int i = 0; i <= kChunkRows; ++i) b.state_scales[i] = scales.scale_of(z);
    for (int c = 0; c < kChunkRows; c += V::kLanes) V::store(b.lanes + c, V::add(V::load(b.lanes + c), chunk.epsilon(c)));
    write_outputs<Triangle::lower>(chunk, first, count, {b.left, s, p.feature_count, b.values, nullptr, nullptr, 0, b.partial});
  });
}

}  // namespace
}  // namespace attn::cpu
