// The forward pass of linear attention: output [B,H,N,M] and normalizer [B·H,N], causal or not.
//
// A block processes a head and a split. It begins with the state of the keys before the split or, without the causal mask, of all
// keys. For each chunk it multiplies φ(q) by the state, adds the product of the scores of the chunk with itself and v, divides by
// the normalizer, and then adds the chunk's keys to the state. block.cuh describes the shared memory; the 3 row tiles are φ(q),
// φ(k), v.
#pragma once

#include "attn/linear/cuda/block.cuh"

namespace attn::cuda {

template <class S>
__global__ void __launch_bounds__(S::kThreads) forward(LinearParams params) {
  const LinearBlock<S> block(params, 3);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2];
  block.begin_state();
  const int64_t end = block.end(params.query_len);
  for (int64_t first = block.begin(params.query_len); first < end; first += S::kRows) {
    __syncthreads();
    block.load_features(q, params.q, first, end);
    if (params.causal) {
      block.load_features(k, params.k, first, block.min_of(end, block.visible));
      block.load_values(v, first);
    }
    __syncthreads();
    float totals[2];
    block.dot_with_vector(q, totals);
    Accumulator out[S::kTiles];
    if (params.causal) {
      Accumulator scores[S::kScoreTiles];
      score_rows<S>(scores, q, k);
      zero_unseen<S>(scores);
      add_row_sums<S>(scores, totals);
      store_scores<S>(scores, block.scores, [](int, int, float x) { return x; });
      apply_scores<S>(out, block.scores, v);
    }
    block.read_state(out, q, /*transposed=*/false);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = totals[half] + params.epsilon;
      const int64_t position = first + warp() * 16 + lane() / 4 + half * 8;
      if (lane() % 4 == 0 && position < end)
        static_cast<float*>(params.normalizer)[block.index * params.query_len + position] = total;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) out[t].x[half * 2] /= total, out[t].x[half * 2 + 1] /= total;
    }
    block.store(out, q, params.output, first, end, params.value_dim, [](float x, int64_t, int) { return x; });
    if (!params.causal) continue;
    __syncthreads();
    block.add_to_state(k, v, [](int) { return 1.0f; });
  }
}

}  // namespace attn::cuda
