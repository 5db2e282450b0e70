// The backward pass of LSH attention: grad_qk [B,H,N,D] and grad_v [B,H,N,M].
//
//   lsh_backward         one block for up to S::kRows queries of a chunk, in one round. Shared memory is laid out as in
//   block.cuh,
//                        with 4 row tiles: q, k, v, g
//   lsh_add_wrapped      one warp for each place in a chunk; no shared memory
//   lsh_store_gradients  one warp for each position; no shared memory
//
// Weights are computed again from the saved order and log-sum-exp. Gradients are the same bits in every run: no two blocks of a
// launch write the same number, and launches run one after another. A round has every position once as a query, once as a key of
// its own chunk, and once as a key that the following chunk looks back at. Each of these three roles has accumulators of its own,
// to which a block adds without atomics. Where a chunk has more queries than a block takes, its tiles of queries are launches of
// their own, because they see the same keys.
//
// The first chunk of a round in the trax profile looks back at the last chunk of another round, which may hold positions that
// other chunks look back at too. It writes to small accumulators by place, which lsh_add_wrapped adds to the others.
#pragma once

#include "attn/lsh/cuda/block.cuh"

namespace attn::cuda {

// Two neighbouring columns of a row. Rows have an even number of columns.
struct alignas(8) ColumnPair {
  float x, y;
};

// Calls work(t, i, pair) for the entries i and i + 1 of the lane's Accumulators t, with the columns that belong to them in the
// matrix `rows` [·, dim]. Row r of the tile is row row_of(r) of the matrix; rows where that is negative are left out, as are
// columns from `dim` on. The first Accumulator has the columns from first_column on.
template <int kTiles, class Row, class Work>
__device__ inline void for_each_pair(const Row& row_of, int first_column, int dim, float* rows, const Work& work) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const int32_t row = row_of(warp() * 16 + Accumulator::row(i));
    if (row < 0) continue;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int column = first_column + t * 8 + Accumulator::column(i);
      if (column < dim) work(t, i, *reinterpret_cast<ColumnPair*>(rows + int64_t(row) * dim + column));
    }
  }
}

// Adds (the warp's 16 columns of scores)ᵀ · right [kRows, kDim] to rows of the matrix `to` [·, dim], as for for_each_pair(). It
// reads rows that other warps wrote. It works on 64 columns at a time, because the registers hold no more beside those of the
// caller.
template <class S, class Row>
__device__ inline void add_transposed_product(const typename S::Tile* scores, const typename S::Tile* right, const Row& row_of,
                                              int dim, float* to) {
  constexpr int kTiles = S::kTiles < 8 ? S::kTiles : 8;
#pragma unroll 1
  for (int first = 0; first < S::kDim; first += kTiles * 8) {
    Accumulator sum[kTiles];
    for_each_pair<kTiles>(row_of, first, dim, to,
                          [&](int t, int i, const ColumnPair& p) { sum[t].x[i] = p.x, sum[t].x[i + 1] = p.y; });
    add_transposed_scores<S>(sum, scores, right + first);
    for_each_pair<kTiles>(row_of, first, dim, to, [&](int t, int i, ColumnPair& p) { p = {sum[t].x[i], sum[t].x[i + 1]}; });
  }
}

// Adds the contributions of a tile of queries to the accumulators. Weights are share · exp(logit − log-sum-exp).
template <class S>
__global__ void __launch_bounds__(S::kThreads) lsh_backward(LshParams params, int64_t round, int64_t query_tile) {
  const LshBlock<S, Pass::backward> block(params, round, int64_t(blockIdx.x), query_tile);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2], *g = block.tile[3];
  block.load_queries(q);
  block.begin_gather(g, params.grad_output, block.query_positions, params.value_dim);
  finish_loads();
  __syncthreads();
  // Of the lane's two rows: the log-sum-exp as a float32 number and what this leaves of it, the share of the round, and the sum
  // Σ w (g·v) in the softmax's derivative. Near −1e5, a single float32 number has no digits left for the logarithm of a sum.
  auto queries = block.queries();
  float log_sum[2], log_sum_rest[2], share[2], delta[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = block.query_row(half);
    const int32_t position = block.query_positions[row];
    // If the query of a hidden position is not finite, its row of the output is NaN. That row contributes no gradient.
    const bool no_gradient = position < 0 || (block.query_not_finite[row] && position >= block.visible_keys);
    const double all = no_gradient ? 0 : params.log_sum_exp[block.by_position(position)];
    log_sum[half] = float(all);
    log_sum_rest[half] = float(all - double(log_sum[half]));
    share[half] = no_gradient ? 0 : params.shares[block.by_position(position)];
    if (share[half] == 0) queries.limit[half] = 0;  // all weights are zeros
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
    for (int t = 0; t < S::kScoreTiles; ++t) {
      const auto keys = block.keys(t);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = scores[t].x[i];
        const float weight = share[i / 2] * fast_exp(block.logit(x, queries, keys, i) - log_sum[i / 2] - log_sum_rest[i / 2]);
        x = block.sees(queries, keys, i) ? weight : 0;
      }
    }
  };
  if (!params.trax) {
    float sums[2] = {0, 0};
    block.for_each_key_tile(k, v, [&](bool, int64_t) {
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
  const bool first_chunk = block.number == 0;
  block.for_each_key_tile(k, v, [&](bool before, int64_t first) {
    const bool wraps = before && first_chunk && params.wrapped_key != nullptr;
    const auto row_of = [&](int t) {
      const int32_t position = block.key_positions[t];
      return position >= 0 && wraps ? int32_t(first) + t : position;
    };
    const auto rows_of_head = [&](float* own, float* of_before, float* wrapped, int dim) {
      return wraps ? wrapped + block.index * params.chunk * dim : (before ? of_before : own) + block.index * params.length * dim;
    };
    Accumulator weights[S::kScoreTiles];
    compute_weights(weights);
    store_scores<S>(weights, block.scores);
    __syncthreads();
    add_transposed_product<S>(block.scores, g, row_of, params.value_dim,
                              rows_of_head(params.grad_value, params.grad_value_before, params.wrapped_value, params.value_dim));
    {
      // The gradients of the logits times the key's scale. Both the gradient of x as a query and that of x as a key contain them.
      Accumulator grad_weights[S::kScoreTiles];
      score_rows<S>(grad_weights, g, v);
#pragma unroll
      for (int t = 0; t < S::kScoreTiles; ++t) {
        const auto keys = block.keys(t);
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[t].x[i] *= (grad_weights[t].x[i] - delta[i / 2]) * keys.scale[i % 2];
      }
    }
    __syncthreads();
    store_scores<S>(weights, block.scores);
    __syncthreads();
    weigh_rows<S>(grad_query, weights, k);
    add_transposed_product<S>(block.scores, q, row_of, params.head_dim,
                              rows_of_head(params.grad_key, params.grad_key_before, params.wrapped_key, params.head_dim));
  });
  const auto query_row = [&](int t) { return block.query_positions[t]; };
  float* const to = params.grad_query + block.index * params.length * params.head_dim;
  for_each_pair<S::kTiles>(query_row, 0, params.head_dim, to,
                           [&](int t, int i, ColumnPair& p) { p.x += grad_query[t].x[i], p.y += grad_query[t].x[i + 1]; });
}

// Adds the accumulators by place of the keys that the first chunk of `round` looked back at to those by position, and makes them
// zero again. A warp takes a place.
inline __global__ void lsh_add_wrapped(LshParams params, int64_t round) {
  wait_for_previous_kernel();
  const int64_t row = int64_t(blockIdx.x) * (blockDim.x / kWarp) + warp(), index = row / params.chunk, place = row % params.chunk;
  const int64_t first = (params.chunks - 1) * params.chunk;  // of the last chunk
  if (index >= params.batch * params.heads || first + place >= params.length) return;
  const int64_t before = (round + params.rounds - 1) % params.rounds;
  const int64_t position = params.order[(index * params.rounds + before) * params.length + first + place];
  if (position < 0 || position >= params.length) return;
  const auto add = [&](float* from, float* to, int dim) {
    for (int d = lane(); d < dim; d += kWarp) {
      to[d] += from[d];
      from[d] = 0;
    }
  };
  const int64_t to = index * params.length + position;
  add(params.wrapped_key + row * params.head_dim, params.grad_key_before + to * params.head_dim, params.head_dim);
  add(params.wrapped_value + row * params.value_dim, params.grad_value_before + to * params.value_dim, params.value_dim);
}

// Writes grad_qk and grad_v from the accumulators. grad_qk has two parts: from x as a query, and from the key x·scale, where
// scale depends on x too. A warp takes a position.
template <class E>
__global__ void lsh_store_gradients(LshParams params) {
  wait_for_previous_kernel();
  const int64_t row = int64_t(blockIdx.x) * (blockDim.x / kWarp) + warp();
  if (row >= params.batch * params.heads * params.length) return;  // true for all lanes of a warp or for none
  const int64_t index = row / params.length, position = row % params.length;
  const auto at = [&](const StridedTensor& t) {
    return static_cast<E*>(t.data) + index / params.heads * t.batch_stride + index % params.heads * t.head_stride +
           position * t.row_stride;
  };
  const E* x = at(params.qk);
  const float* grad_query = params.grad_query + row * params.head_dim;
  const auto grad_key = [&](int d) {
    return params.grad_key[row * params.head_dim + d] + params.grad_key_before[row * params.head_dim + d];
  };
  float squares = 0, along = 0, zero = 0;
  for (int d = lane(); d < params.head_dim; d += kWarp) {
    const float entry = to_float(x[d]);
    squares += entry * entry;
    along += entry * grad_key(d);
    zero += entry * 0;
  }
  squares = sum_over_lanes(squares);
  along = sum_over_lanes(along);
  const bool finite = sum_over_lanes(zero) == 0;
  // The gradient of x · scale(x) with respect to x: the derivative of the scale subtracts a multiple of x.
  const float scale = finite ? key_scale(params, squares) * sqrtf(float(params.head_dim)) : 0;
  const float factor = finite ? along * scale * scale / (params.trax ? float(params.head_dim) : 1.0f) : 0;
  E* to = at(params.grad_qk);
  for (int d = lane(); d < params.head_dim; d += kWarp)
    to[d] = from_float<E>(grad_query[d] + grad_key(d) - (finite ? to_float(x[d]) * factor : 0.0f));
  E* to_v = at(params.grad_v);
  for (int m = lane(); m < params.value_dim; m += kWarp) {
    const int64_t i = row * params.value_dim + m;
    to_v[m] = from_float<E>(params.grad_value[i] + params.grad_value_before[i]);
  }
}

}  // namespace attn::cuda
