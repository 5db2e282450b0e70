// The backward pass of linear attention: grad_q [B,H,N,D], grad_k [B,H,L,D] and grad_v [B,H,L,M], causal or not.
//
// Two kernels, each with one block for each head and split: backward_queries goes forward over the positions, as the forward pass
// does, and backward_keys goes back over them. block.cuh describes the shared memory; the 4 row tiles are φ(q), φ(k), v and g′.
#pragma once

#include "attn/linear/cuda/block.cuh"

namespace attn::cuda {

// Writes grad_q and δ, going forward over the positions. S and Z hold the keys before the chunk or, without the causal mask, all
// keys.
template <class S>
__global__ void __launch_bounds__(S::kThreads) backward_queries(LinearParams params) {
  const LinearBlock<S> block(params, 4);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2], *g = block.tile[3];
  block.begin_state();
  const int64_t end = block.end(params.query_len);
  for (int64_t first = block.begin(params.query_len); first < end; first += S::kRows) {
    __syncthreads();
    block.load_normalizers(first, end, /*with_gradients=*/false);
    __syncthreads();
    block.load_features(q, params.q, first, end);
    block.load_scaled_gradients(g, first, end);
    if (params.causal) {
      block.load_features(k, params.k, first, block.min_of(end, block.visible));
      block.load_values(v, first);
    }
    __syncthreads();
    Accumulator grad_phi[S::kTiles];
    block.read_state(grad_phi, g, /*transposed=*/true);
    if (params.causal) {
      Accumulator scores[S::kScoreTiles];
      score_rows<S>(scores, g, v);
      store_scores<S>(scores, block.scores, [](int row, int column, float x) { return column <= row ? x : 0.0f; });
      apply_scores<S>(grad_phi, block.scores, k);
    }
    // δ = (ε c·g′ − φ·grad_phi) / normalizer of the lane's two rows, where c is what is taken off v, computed before the
    // contribution of δ is added to grad_phi.
    const float* shift = block.value_shift();
    float delta[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp() * 16 + lane() / 4 + half * 8;
      float dot = 0;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = t * 8 + Accumulator::column(i);
          dot += params.epsilon * shift[column] * to_float(g[row * S::kStride + column]) -
                 to_float(q[row * S::kStride + column]) * grad_phi[t].x[half * 2 + i];
        }
      delta[half] = sum_over_lanes(dot, 4) * block.inverse_normalizer[row];
      if (lane() % 4 == 0 && first + row < end)
        static_cast<float*>(params.grad_normalizer)[block.index * params.query_len + first + row] = delta[half];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) grad_phi[t].x[half * 2 + i] += delta[half] * block.vector[t * 8 + Accumulator::column(i)];
    }
    if (params.causal) {
      // Each key of the chunk that the row sees contributes δ·φ(k) to grad_phi.
      const Accumulator none[S::kScoreTiles];
      store_scores<S>(none, block.scores,
                      [&](int row, int column, float) { return column <= row ? (row % 16 < 8 ? delta[0] : delta[1]) : 0.0f; });
      apply_scores<S>(grad_phi, block.scores, k);
    }
    const typename S::E* x = block.rows(params.q);
    block.store(grad_phi, g, params.grad_q, first, end, params.head_dim, [&](float grad_phi_entry, int64_t position, int column) {
      return feature_map_gradient(params.map, to_float(x[position * params.q.row_stride + column]), grad_phi_entry);
    });
    if (!params.causal) continue;
    __syncthreads();
    block.add_to_state(k, v, [](int) { return 1.0f; });
  }
}

// Writes grad_k and grad_v, going back over the positions. R and Y hold the queries after the chunk or, without the causal mask,
// all queries.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kPrecision == Precision::tf32_three ? 1 : 2)
    backward_keys(LinearParams params) {
  const LinearBlock<S> block(params, 4);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2], *g = block.tile[3];
  block.begin_state();
  const int64_t begin = block.begin(params.key_len), end = block.end(params.key_len);
  for (int64_t first = begin + (end - begin - 1) / S::kRows * S::kRows; first >= begin; first -= S::kRows) {
    __syncthreads();
    if (params.causal) block.load_normalizers(first, end, /*with_gradients=*/true);
    __syncthreads();
    block.load_features(k, params.k, first, block.min_of(end, block.visible));
    block.load_values(v, first);
    if (params.causal) {
      block.load_features(q, params.q, first, end);
      block.load_scaled_gradients(g, first, end);
    }
    __syncthreads();
    const auto seen = [](int row, int column) { return column >= row; };  // row is a key, column a query
    const auto hide = [&](float x, int64_t position, int) { return position < block.visible ? x : 0.0f; };
    Accumulator grad_v[S::kTiles];
    block.read_state(grad_v, k, /*transposed=*/false);
    if (params.causal) {
      Accumulator scores[S::kScoreTiles];
      score_rows<S>(scores, k, q);
      store_scores<S>(scores, block.scores, [&](int row, int column, float x) { return seen(row, column) ? x : 0.0f; });
      apply_scores<S>(grad_v, block.scores, g);
    }
    block.store(grad_v, k, params.grad_v, first, end, params.value_dim, hide);  // only this warp reads these rows of k
    Accumulator grad_phi[S::kTiles];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) grad_phi[t].x[i] = block.vector[t * 8 + Accumulator::column(i)];
    block.read_state(grad_phi, v, /*transposed=*/true);
    if (params.causal) {
      Accumulator scores[S::kScoreTiles];
      score_rows<S>(scores, v, g);
      store_scores<S>(scores, block.scores,
                      [&](int row, int column, float x) { return seen(row, column) ? x + block.grad_normalizer[column] : 0.0f; });
      apply_scores<S>(grad_phi, block.scores, q);
    }
    const typename S::E* x = block.rows(params.k);
    block.store(grad_phi, v, params.grad_k, first, end, params.head_dim, [&](float grad_phi_entry, int64_t position, int column) {
      return hide(feature_map_gradient(params.map, to_float(x[position * params.k.row_stride + column]), grad_phi_entry),
                  position, column);
    });
    if (!params.causal) continue;
    __syncthreads();
    block.add_to_state(q, g, [&](int t) { return block.grad_normalizer[t]; });
  }
}

}  // namespace attn::cuda
