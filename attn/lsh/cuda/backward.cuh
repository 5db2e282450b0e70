// The backward pass of LSH attention: grad_qk [B,H,N,D] and grad_v [B,H,N,M].
//
//   lsh_backward         one block for up to S::kRows queries of a chunk, all rounds in one launch. Shared memory is laid out as
//                        in block.cuh, with 4 row tiles: q, k, v, g
//   lsh_store_gradients  one warp for each position; no shared memory
//
// Weights are computed again from the saved order and log-sum-exp. Gradients are accumulated in global memory by float32 atomics.
// The order of these additions, and with it the last digits of the gradients, differs from run to run.
#pragma once

#include "attn/lsh/cuda/block.cuh"

namespace attn::cuda {

// Adds (the warp's 16 columns of scores)ᵀ · right [kRows, kDim] to the rows of `to` [N, dim] at `positions`. It reads rows that
// other warps wrote. It works on 64 columns at a time, because the registers hold no more beside those of the caller.
template <class S>
__device__ inline void add_transposed_product(const typename S::Tile* scores, const typename S::Tile* right,
                                              const int32_t* positions, int dim, float* to) {
  constexpr int kTiles = S::kTiles < 8 ? S::kTiles : 8;
#pragma unroll 1
  for (int first = 0; first < S::kDim; first += kTiles * 8) {
    Accumulator sum[kTiles];
    multiply<typename S::F, kTiles, S::kScoreSteps>(sum, scores + warp() * 16, 1, S::kScoreStride, right + first, S::kStride, 1);
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t position = positions[warp() * 16 + Accumulator::row(i)];
        const int column = first + t * 8 + Accumulator::column(i);
        if (position >= 0 && column < dim) atomicAdd(to + int64_t(position) * dim + column, sum[t].x[i]);
      }
  }
}

// Adds the contributions of a tile of queries to grad_query, grad_key and grad_value. Weights are share · exp(logit −
// log-sum-exp).
template <class S>
__global__ void __launch_bounds__(S::kThreads) lsh_backward(LshParams params) {
  const LshBlock<S> block(params, 4, 0, params.rounds * params.chunks);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2], *g = block.tile[3];
  block.load_queries(q);
  block.gather(g, params.grad_output, block.query_positions, params.value_dim);
  __syncthreads();
  // Of the lane's two rows: the log-sum-exp and the share of the round, and the sum Σ w (g·v) in the softmax's derivative.
  double log_sum[2];
  float share[2], delta[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp() * 16 + lane() / 4 + half * 8;
    const int32_t position = block.query_positions[row];
    // If the query of a hidden position is not finite, its row of the output is NaN. That row contributes no gradient.
    const bool no_gradient = position < 0 || (block.query_not_finite[row] && position >= block.visible_keys);
    log_sum[half] = no_gradient ? 0 : params.log_sum_exp[block.by_position(position)];
    share[half] = no_gradient ? 0 : params.shares[block.by_position(position)];
    if (params.trax && !no_gradient) {
      // Over all rounds, Σ w (g·v) equals g·output.
      const auto* out = block.rows(params.output) + position * params.output.row_stride;
      float sum = 0;
      for (int m = lane() % 4; m < params.value_dim; m += 4) sum += to_float(g[row * S::kStride + m]) * to_float(out[m]);
      delta[half] = sum;
    }
    delta[half] = sum_over_lanes(delta[half], 4);
  }
  // Computes the weights of the tile's keys, with zeros where a row does not see a key.
  const auto compute_weights = [&](Accumulator(&scores)[S::kScoreTiles]) {
    score_rows<S>(scores, q, k);
#pragma unroll
    for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = warp() * 16 + Accumulator::row(i), column = t * 8 + Accumulator::column(i);
        float& x = scores[t].x[i];
        if (!block.sees(row, column)) {
          x = 0;
          continue;
        }
        float logit = x * block.key_scales[column];
        // Near −1e5 float32 has no digits left for the logarithm of a sum, so the log-sum-exp is subtracted in float64. The logit
        // itself is rounded to float32 as in the forward pass.
        if (block.is_own(row, column)) logit = float(double(logit - float(kOwnPositionPenalty)) - log_sum[i / 2]);
        else logit -= float(log_sum[i / 2]);
        x = share[i / 2] == 0 ? 0.0f : share[i / 2] * expf(logit);
      }
  };
  if (!params.trax) {
    float sums[2] = {0, 0};
    block.for_each_key_tile(k, v, [&] {
      Accumulator weights[S::kScoreTiles], grad_weights[S::kScoreTiles];
      compute_weights(weights);
      score_rows<S>(grad_weights, g, v);
#pragma unroll
      for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i / 2] += weights[t].x[i] * grad_weights[t].x[i];
    });
    for (int half = 0; half < 2; ++half) delta[half] = sum_over_lanes(sums[half], 4) * float(params.rounds);
  }
  Accumulator grad_query[S::kTiles];
  block.for_each_key_tile(k, v, [&] {
    Accumulator weights[S::kScoreTiles];
    compute_weights(weights);
    store_scores<S>(weights, block.scores, [](int, int, float x) { return x; });
    __syncthreads();
    add_transposed_product<S>(block.scores, g, block.key_positions, params.value_dim,
                              params.grad_value + block.index * params.length * params.value_dim);
    {
      // The gradients of the logits times the key's scale. Both the gradient of x as a query and that of x as a key contain them.
      Accumulator grad_weights[S::kScoreTiles];
      score_rows<S>(grad_weights, g, v);
#pragma unroll
      for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          weights[t].x[i] *= (grad_weights[t].x[i] - delta[i / 2]) * block.key_scales[t * 8 + Accumulator::column(i)];
    }
    __syncthreads();
    store_scores<S>(weights, block.scores, [](int, int, float x) { return x; });
    __syncthreads();
    apply_scores<S>(grad_query, block.scores, k);
    add_transposed_product<S>(block.scores, q, block.key_positions, params.head_dim,
                              params.grad_key + block.index * params.length * params.head_dim);
  });
  float* to = params.grad_query + block.index * params.length * params.head_dim;
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t position = block.query_positions[warp() * 16 + Accumulator::row(i)];
      const int column = t * 8 + Accumulator::column(i);
      if (position >= 0 && column < params.head_dim)
        atomicAdd(to + int64_t(position) * params.head_dim + column, grad_query[t].x[i]);
    }
}

// Writes grad_qk and grad_v from the accumulators. grad_qk has two parts: from x as a query, and from the key x·scale, where
// scale depends on x too. A warp takes a position.
template <class E>
__global__ void lsh_store_gradients(LshParams params) {
  const int64_t row = int64_t(blockIdx.x) * (blockDim.x / kWarp) + warp();
  if (row >= params.batch * params.heads * params.length) return;  // true for all lanes of a warp or for none
  const int64_t index = row / params.length, position = row % params.length;
  const auto at = [&](const StridedTensor& t) {
    return static_cast<E*>(t.data) + index / params.heads * t.batch_stride + index % params.heads * t.head_stride +
           position * t.row_stride;
  };
  const E* x = at(params.qk);
  const float *grad_query = params.grad_query + row * params.head_dim, *grad_key = params.grad_key + row * params.head_dim;
  float squares = 0, along = 0, zero = 0;
  for (int d = lane(); d < params.head_dim; d += kWarp) {
    const float entry = to_float(x[d]);
    squares += entry * entry, along += entry * grad_key[d], zero += entry * 0;
  }
  squares = sum_over_lanes(squares), along = sum_over_lanes(along);
  const bool finite = sum_over_lanes(zero) == 0;
  // The gradient of x · scale(x) with respect to x: the derivative of the scale subtracts a multiple of x.
  const float scale = finite ? key_scale(params, squares) * sqrtf(float(params.head_dim)) : 0;
  const float factor = finite ? along * scale * scale / (params.trax ? float(params.head_dim) : 1.0f) : 0;
  E* to = at(params.grad_qk);
  for (int d = lane(); d < params.head_dim; d += kWarp)
    to[d] = from_float<E>(grad_query[d] + grad_key[d] - (finite ? to_float(x[d]) * factor : 0.0f));
  E* to_v = at(params.grad_v);
  for (int m = lane(); m < params.value_dim; m += kWarp) to_v[m] = from_float<E>(params.grad_value[row * params.value_dim + m]);
}

}  // namespace attn::cuda
