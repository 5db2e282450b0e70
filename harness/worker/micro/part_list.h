// PartList<V>: the parts of the kernels, compiled for the vectors V. Include this only from files that are compiled for one
// instruction set (attn/cpu/simd.h says why).
#pragma once

#include "attn/linear/cpu/vectors/backward.h"
#include "attn/linear/cpu/vectors/forward.h"
#include "harness/worker/micro/parts.h"

namespace attnbench {
namespace {

using attn::cpu::kChunkRows;
using attn::cpu::Rows;
using attn::cpu::Triangle;

constexpr int64_t kChainSteps = 1000;
constexpr int kChains = 12;

// Counts the loads and stores of the tiles of a product of rows × depth × columns as the kernels divide it.
struct TileCount {
  int64_t loads = 0, stores = 0;
};
template <class V>
TileCount count_tiles(int64_t rows, int64_t depth, int64_t columns, bool loads_sums) {
  TileCount count;
  attn::cpu::for_each_column_tile<V>(columns, [&]<int kVectors>(int64_t) {
    const auto tile = [&]<int kRows>(int64_t) {
      count.loads += depth * (kRows + kVectors) + (loads_sums ? kRows * kVectors : 0);
      count.stores += kRows * kVectors;
    };
    attn::cpu::for_each_tile_row(rows, tile);
  });
  return count;
}

inline attn::cpu::LinearHeadParams params_of(const PartData& d, bool streams) {
  attn::cpu::LinearHeadParams p{};
  p.map = attn::FeatureMapKind::elu;
  p.head_dim = p.feature_count = p.value_dim = kPartDim;
  p.visible_keys = d.length;
  p.epsilon = 1e-6;
  const auto rows = [&](float* x) { return Rows{x, streams ? kPartDim : 0}; };
  p.q = rows(d.q);
  p.k = rows(d.k);
  p.v = rows(d.v);
  p.output = rows(d.output);
  p.grad_output = rows(d.grad_output);
  p.grad_q = rows(d.grad_q);
  p.grad_k = rows(d.grad_k);
  p.grad_v = rows(d.grad_v);
  p.normalizer = d.normalizer;
  p.grad_normalizer = d.grad_normalizer;
  p.value_shift = nullptr;
  return p;
}

template <class V>
struct PartList {
  using Map = attn::cpu::Elu<V>;
  using Chunk = attn::cpu::LinearChunk<V, float, Map>;

  static constexpr int64_t kVectors = kPartDim / V::kLanes;                    // vectors of a row
  static constexpr int64_t kProduct = kChunkRows * kPartDim * kVectors;        // multiply-adds of a chunk times a state
  static constexpr int64_t kPairs = kChunkRows * (kChunkRows + 1) / 2;         // visible pairs of positions in a causal chunk
  static constexpr int64_t kGroups = kChunkRows / V::kLanes;                   // groups of scores of a chunk (score_groups())
  static constexpr int64_t kScores = V::kLanes * kGroups * (kGroups + 1) / 2;  // computed vectors of scores

  static void chains(const PartData& d) {
    typename V::F sum[kChains];
    for (int i = 0; i < kChains; ++i) sum[i] = V::all(d.rows[i]);
    const auto x = V::load(d.value_shift);
    for (int64_t step = 0; step < kChainSteps; ++step)
#pragma GCC unroll 16
      for (auto& each : sum) each = V::fma(x, x, each);
    for (int i = 1; i < kChains; ++i) sum[0] = V::add(sum[0], sum[i]);
    V::store(d.products, sum[0]);
  }

  static void features(const PartData& d) {
    attn::cpu::apply_map<V, float, Map>({d.rows, kPartDim}, 0, kChunkRows, kPartDim, kPartDim, kPartDim, 0, nullptr, 0,
                                        d.features);
  }
  static void transposition(const PartData& d) {
    attn::cpu::transpose<V>(d.rows, kPartDim, kChunkRows, kPartDim, d.left, kChunkRows);
  }
  static void scores(const PartData& d) {
    attn::cpu::scores_of<V>(d.left, d.rows, kPartDim, kPartDim, d.scores, d.state_vector, d.products);
  }
  static void read(const PartData& d) {
    attn::cpu::read_all_tiles<V, Triangle::lower>({d.left, d.state, kPartDim, kPartDim, d.scores, d.rows, kPartDim, nullptr},
                                                  {d.features, kPartDim});
  }
  static void read_along_rows(const PartData& d) {
    attn::cpu::scores_of_rows<V>(d.left, d.state, kPartDim, kPartDim, kPartDim, d.products);
  }
  static void pairs(const PartData& d) {
    attn::cpu::read_all_tiles<V, Triangle::upper>({d.left, nullptr, 0, kPartDim, d.scores, d.rows, kPartDim, d.products, true},
                                                  {d.features, kPartDim});
  }
  static void add(const PartData& d) {
    attn::cpu::add_products_of_chunk<V>(d.rows, kPartDim, d.features, kPartDim, kPartDim, kPartDim, d.state);
  }

  static void clear(const PartData& d) {
    for (int64_t i = 0; i < kPartDim * kPartDim; ++i) d.state[i] = 0;
    for (int64_t i = 0; i < kPartDim; ++i) d.state_vector[i] = 0;
  }
  template <bool kStreams>
  static void forward(const PartData& d) {
    clear(d);
    Chunk chunk(params_of(d, kStreams), d.scratch);
    attn::cpu::linear_forward(chunk, 0, d.length, d.state, d.state_vector);
  }
  // The backward passes subtract a shift from the values, for which they copy them to a buffer.
  template <bool kStreams, auto kPass>
  static void backward(const PartData& d) {
    clear(d);
    auto p = params_of(d, kStreams);
    p.value_shift = d.value_shift;
    Chunk chunk(p, d.scratch);
    kPass(chunk, 0, d.length, /*causal=*/true, d.state, d.state_vector);
  }
  static constexpr auto kOfQueries = &attn::cpu::linear_backward_queries<V, float, Map>;
  static constexpr auto kOfKeys = &attn::cpu::linear_backward_keys<V, float, Map>;

  static Parts all() {
    static const auto state = count_tiles<V>(kChunkRows, kPartDim, kPartDim, false);
    static const auto addition = count_tiles<V>(kPartDim, kChunkRows, kPartDim, true);
    // The tiles of pairs load as many numbers for each multiply-add as the tiles of a product with the state.
    static const int64_t pair_loads = state.loads * kPairs / (kChunkRows * kPartDim);
    static const int64_t score_loads = kPartDim * (kScores + kGroups * (V::kLanes == 16 ? 1 : 3) + 1);
    // The loads of v times Rᵀ, with the tiles into which scores_of_rows() divides the rows of the state.
    static const int64_t row_loads = [] {
      int64_t loads = 0;
      [[maybe_unused]] const auto tile = [&]<int kRows>(int64_t) { loads += kPartDim * (kRows + kGroups); };
      if constexpr (V::kLanes == 16) loads = kPartDim / V::kLanes * kPartDim * (V::kLanes + kGroups);
      else attn::cpu::for_each_tile_row(kPartDim, tile);
      return loads;
    }();
    static const Part parts[] = {
        {"φ of 16 rows", 0, 0, 0, false, false, features},
        {"transposition of 16 rows", 0, 0, 0, false, false, transposition},
        {"scores of the chunk, φ(q) times Z", (kScores + kGroups) * kPartDim, score_loads, kScores + kGroups, false, false,
         scores},
        {"φ(q) times S, and scores times v", kProduct + kPairs * kVectors, state.loads + pair_loads, state.stores, false, false,
         read},
        {"φ(k)ᵀ v added to S", kProduct, addition.loads, addition.stores, false, false, add},
        {"v times Rᵀ", kProduct, row_loads, kPartDim * kGroups, false, false, read_along_rows},
        {"scores times φ(q) alone", kPairs * kVectors, pair_loads + state.stores, state.stores, false, false, pairs},
        {"forward pass, rows in the first-level cache", 2 * kProduct, 0, 0, true, false, forward<false>},
        {"forward pass", 2 * kProduct, 0, 0, true, true, forward<true>},
        {"backward pass of q, rows in the first-level cache", 2 * kProduct, 0, 0, true, false, backward<false, kOfQueries>},
        {"backward pass of q", 2 * kProduct, 0, 0, true, true, backward<true, kOfQueries>},
        {"backward pass of k and v, rows in the first-level cache", 3 * kProduct, 0, 0, true, false, backward<false, kOfKeys>},
        {"backward pass of k and v", 3 * kProduct, 0, 0, true, true, backward<true, kOfKeys>},
    };
    PartData none{};
    return {parts,     int64_t(sizeof(parts) / sizeof(parts[0])),
            V::kLanes, kChainSteps * kChains,
            chains,    attn::cpu::LinearScratch::size(params_of(none, true))};
  }
};

}  // namespace
}  // namespace attnbench
