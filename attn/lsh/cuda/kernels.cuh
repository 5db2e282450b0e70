// LSH attention on the GPU: a block takes 64 queries of a chunk and goes over the keys of its chunk and of the chunk before, a
// tile at a time, gathered by position, with an online softmax. Rounds are launches one after the other, each merged into the
// output by log-sum-exp; so a position is written by one block a launch, and nothing of all rounds is kept but two numbers a
// position. Backward does the tiles of all rounds at once and adds gradients up by atomics, float32: their order, and with it the
// last digits, differs from run to run.
#pragma once

#include "attn/lsh/cuda/call.h"
#include "attn/cuda/tiles.cuh"

namespace attn::cuda {

constexpr float kOwnPositionPenalty = 1e5f;  // trax: any other visible key outweighs the own position
constexpr float kMeanSquareEpsilon = 1e-6f;  // trax: below the root of the keys' mean square

// The chunk that a chunk (of all R·C) looks back to, or −1.
__device__ inline int64_t chunk_before(const LshCall& c, int64_t chunk) {
  const int64_t all = c.rounds * c.chunks;
  if (c.trax) return all == 1 ? -1 : (chunk + all - 1) % all;
  return chunk % c.chunks == 0 ? -1 : chunk - 1;
}

// What the key of x is x times of, 1/√D included.
__device__ inline float key_scale(const LshCall& c, float squares) {
  const float dim = float(c.head_dim);
  if (c.trax) return 1 / sqrtf(squares / dim + kMeanSquareEpsilon) / sqrtf(dim);
  return squares == 0 ? 0 : 1 / sqrtf(squares) / sqrtf(dim);
}

template <class S>
constexpr size_t lsh_shared_bytes(int tiles) {
  return tiles * S::tile_bytes() + S::score_bytes() + sizeof(int32_t) * 7 * S::kTokens;
}

template <class S>
class LshBlock {
 public:
  using E = typename S::E;
  using Tile = typename S::Tile;

  // Blocks count query tiles first, then chunks from `first_chunk` on, of `chunks` chunks a sequence.
  __device__ LshBlock(const LshCall& call, int tiles, int64_t first_chunk, int64_t chunks) : c(call) {
    const int64_t query_tiles = (c.chunk + S::kTokens - 1) / S::kTokens, i = int64_t(blockIdx.x) / query_tiles;
    first_query = int64_t(blockIdx.x) % query_tiles * S::kTokens;
    chunk = first_chunk + i % chunks, index = i / chunks;
    char* p = shared_memory();
    for (int t = 0; t < tiles; ++t, p += S::tile_bytes()) tile[t] = reinterpret_cast<Tile*>(p);
    scores = reinterpret_cast<Tile*>(p), p += S::score_bytes();
    query_positions = reinterpret_cast<int32_t*>(p), key_positions = query_positions + S::kTokens;
    query_bad = key_positions + S::kTokens, key_bad = query_bad + S::kTokens;
    key_scales = reinterpret_cast<float*>(key_bad + S::kTokens), row_a = key_scales + S::kTokens, row_b = row_a + S::kTokens;
    const int64_t length = c.key_lengths ? c.key_lengths[index / c.heads] : c.length;
    visible = length < 0 ? 0 : length > c.length ? c.length : length;
  }

  __device__ E* rows(const Tensor4& x) const {
    return static_cast<E*>(x.data) + index / c.heads * x.batch_stride + index % c.heads * x.head_stride;
  }
  // Of [G,R,N] by position, in this block's round.
  __device__ int64_t by_position(int64_t position) const { return (index * c.rounds + chunk / c.chunks) * c.length + position; }
  __device__ int64_t size_of(int64_t of_chunk) const {
    const int64_t rest = c.length - of_chunk % c.chunks * c.chunk;
    return rest < c.chunk ? rest : c.chunk;
  }
  // Of a place in a chunk; −1 behind its end, and where `limit` hides it.
  __device__ int32_t position_at(int64_t of_chunk, int64_t place, int64_t limit) const {
    if (place >= size_of(of_chunk)) return -1;
    const int64_t* order = c.order + (index * c.rounds + of_chunk / c.chunks) * c.length + of_chunk % c.chunks * c.chunk;
    return order[place] < limit ? int32_t(order[place]) : -1;
  }

  // Rows of a tensor by position, zeros where it is −1.
  __device__ void gather(Tile* to, const Tensor4& x, const int32_t* positions, int dim) const {
    const E* from = rows(x);
    load_rows<S>(
        to, dim, [&](int t) { return positions[t] >= 0 ? from + int64_t(positions[t]) * x.row_stride : nullptr; },
        [](float entry, int) { return entry; });
  }
  // The warp's rows of a tile whose entries are not all finite become zeros, which 0 · NaN would not be, and are marked. With
  // `squares`: of each row, whose two lanes are next to each other.
  template <class Squares>
  __device__ void clean(Tile* x, int32_t* bad, const Squares& squares) const {
    const int row = warp() * 16 + lane() / 2;
    Tile* entries = x + row * S::kStride;
    float zero = 0, sum = 0;
    for (int d = lane() % 2; d < S::kDim; d += 2) {
      const float entry = to_float(entries[d]);
      zero += entry * 0, sum += entry * entry;
    }
    zero = sum_over_lanes(zero, 2), sum = sum_over_lanes(sum, 2);
    const bool finite = zero == 0;
    if (!finite)
      for (int d = lane() % 2; d < S::kDim; d += 2) entries[d] = from_float<Tile>(0);
    if (lane() % 2 == 0) {
      if (!finite) bad[row] = 1;
      squares(row, finite ? sum : 0);
    }
  }

  __device__ void load_queries(Tile* q) const {
    for (int t = thread(); t < S::kTokens; t += S::kThreads)
      query_positions[t] = position_at(chunk, first_query + t, c.length), query_bad[t] = 0;
    __syncthreads();
    gather(q, c.qk, query_positions, c.head_dim);
    __syncthreads();
    clean(q, query_bad, [](int, float) {});
  }

  // The tiles of keys that the chunk sees: work() with them loaded.
  template <class Work>
  __device__ void for_each_key_tile(Tile* k, Tile* v, const Work& work) const {
    for (int source = 0; source < 2; ++source) {
      const int64_t of_chunk = source == 0 ? chunk : chunk_before(c, chunk);
      if (of_chunk < 0) continue;
      for (int64_t first = 0; first < size_of(of_chunk); first += S::kTokens) {
        __syncthreads();
        for (int t = thread(); t < S::kTokens; t += S::kThreads)
          key_positions[t] = position_at(of_chunk, first + t, visible), key_bad[t] = 0;
        __syncthreads();
        gather(k, c.qk, key_positions, c.head_dim);
        gather(v, c.v, key_positions, c.value_dim);
        __syncthreads();
        clean(k, key_bad, [&](int row, float squares) { key_scales[row] = key_scale(c, squares); });
        __syncwarp();
        clean(v, key_bad, [](int, float) {});
        __syncthreads();
        work();
      }
    }
  }

  __device__ bool sees(int row, int column) const {
    const int32_t query = query_positions[row], key = key_positions[column];
    return query >= 0 && key >= 0 && (!c.causal || key <= query);
  }
  __device__ bool is_own(int row, int column) const { return c.trax && query_positions[row] == key_positions[column]; }

  const LshCall& c;
  int64_t chunk, index, first_query, visible;
  Tile *tile[4], *scores;
  int32_t *query_positions, *key_positions, *query_bad, *key_bad;
  float *key_scales, *row_a, *row_b;
};

// A round joins those before it: their rows are worth `kept` of what they were, its own `share`. Relative to the largest, as the
// own position's −1e5 leaves a log-sum-exp no digits.
struct RoundShares {
  double kept, share;

  __device__ static RoundShares join(double* merged, bool first, double log_sum_exp) {
    const double before = first ? -HUGE_VAL : merged[0], sum = first ? 0 : merged[1];
    if (before != before || log_sum_exp != log_sum_exp) {
      const double nan = before + log_sum_exp;
      merged[0] = merged[1] = nan;
      return {nan, nan};
    }
    const double largest = before > log_sum_exp ? before : log_sum_exp;
    merged[0] = largest, merged[1] = sum;
    if (largest == -HUGE_VAL) return {0, 0};
    const double kept = sum * exp(before - largest), joined = exp(log_sum_exp - largest);
    merged[1] = kept + joined;
    return {kept / merged[1], joined / merged[1]};
  }
};

// One round.
template <class S>
__global__ void __launch_bounds__(S::kThreads) lsh_forward(LshCall c, int64_t round) {
  const LshBlock<S> block(c, 3, round * c.chunks, c.chunks);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2];
  block.load_queries(q);
  Accumulator out[S::kTiles];
  float largest[2] = {-HUGE_VALF, -HUGE_VALF}, sum[2] = {0, 0}, bad[2] = {0, 0};  // of the lane's two rows
  block.for_each_key_tile(k, v, [&] {
    Accumulator scores[S::kScoreTiles];
    score_rows<S>(scores, q, k);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp() * 16 + lane() / 4 + half * 8;
      float most = largest[half];
#pragma unroll
      for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          const int column = t * 8 + Accumulator::column(i);
          float& x = scores[t].x[i];
          if (!block.sees(row, column)) {
            x = -HUGE_VALF;
            continue;
          }
          x = x * block.key_scales[column] - (block.is_own(row, column) ? kOwnPositionPenalty : 0.0f);
          if (block.key_bad[column]) bad[half] = 1;
          most = x > most ? x : most;
        }
      most = max_over_lanes(most, 4);
      const float factor = most == -HUGE_VALF ? 1.0f : expf(largest[half] - most);
      float added = 0;
#pragma unroll
      for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          float& x = scores[t].x[i];
          x = x == -HUGE_VALF ? 0.0f : expf(x - most);
          added += x;
        }
      sum[half] = sum[half] * factor + sum_over_lanes(added, 4);
      largest[half] = most;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) out[t].x[half * 2] *= factor, out[t].x[half * 2 + 1] *= factor;
    }
    store_scores<S>(scores, block.scores, [](int, int, float x) { return x; });
    apply_scores<S>(out, block.scores, v);
  });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp() * 16 + lane() / 4 + half * 8;
    const bool spoilt = max_over_lanes(bad[half], 4) > 0;
    const int32_t position = block.query_positions[row];
    if (lane() % 4 != 0 || position < 0) continue;
    const bool sees = largest[half] != -HUGE_VALF;
    double total = sees ? double(largest[half]) + log(double(sum[half])) : -HUGE_VAL;
    if (sees && (spoilt || block.query_bad[row])) total = double(nanf(""));
    c.log_sum_exp[block.by_position(position)] = total;
    // The row is worth `kept` of what it was, and its own part `share`.
    const float own_sum = sees ? sum[half] : 1;
    float kept = 1, share = total != total ? nanf("") : 1 / (own_sum * float(c.rounds));
    if (c.trax && c.rounds > 1) {
      const auto joined = RoundShares::join(c.merged + 2 * (block.index * c.length + position), round == 0, total);
      kept = float(joined.kept), share = float(joined.share) / own_sum;
    }
    block.row_a[row] = kept, block.row_b[row] = share;
  }
  __syncwarp();
  const auto position_of = [&](int t) { return block.query_positions[warp() * 16 + t]; };
  const auto with_rounds_before = [&](float x, int t, int column) {
    const int row = warp() * 16 + t;
    const float before =
        round == 0 ? 0.0f : c.sums[(block.index * c.length + position_of(t)) * c.value_dim + column] * block.row_a[row];
    return before + x * block.row_b[row];
  };
  if (round + 1 == c.rounds) {
    auto* to = block.rows(c.output);
    store_rows<S>(
        out, q, c.value_dim, [&](int t) { return position_of(t) < 0 ? nullptr : to + position_of(t) * c.output.row_stride; },
        with_rounds_before);
  } else {
    float* to = c.sums + block.index * c.length * c.value_dim;
    store_rows<S, float>(
        out, q, c.value_dim, [&](int t) { return position_of(t) < 0 ? nullptr : to + int64_t(position_of(t)) * c.value_dim; },
        with_rounds_before);
  }
}

// Onto the rows of `to` [·, dim] that belong to positions: the warp's 16 columns of scores, transposed, · right [kTokens, kDim].
// Needs the rows of all warps. In parts of 64 columns, as many as registers hold beside what the caller keeps in them.
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

// Chunks of all rounds, from weights computed again: w = share · exp(logit − log-sum-exp).
template <class S>
__global__ void __launch_bounds__(S::kThreads) lsh_backward(LshCall c) {
  const LshBlock<S> block(c, 4, 0, c.rounds * c.chunks);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2], *g = block.tile[3];
  block.load_queries(q);
  block.gather(g, c.gradient, block.query_positions, c.value_dim);
  __syncthreads();
  // Of the lane's two rows.
  double log_sum[2];
  float share[2], delta[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp() * 16 + lane() / 4 + half * 8;
    const int32_t position = block.query_positions[row];
    // What is not finite in a hidden position's query has spoilt its own row; no gradient comes from there.
    const bool silent = position < 0 || (block.query_bad[row] && position >= block.visible);
    log_sum[half] = silent ? 0 : c.log_sum_exp[block.by_position(position)];
    share[half] = silent ? 0 : c.shares[block.by_position(position)];
    if (c.trax && !silent) {
      // The same sum over all rounds, g·output.
      const auto* out = block.rows(c.output) + position * c.output.row_stride;
      float sum = 0;
      for (int m = lane() % 4; m < c.value_dim; m += 4) sum += to_float(g[row * S::kStride + m]) * to_float(out[m]);
      delta[half] = sum;
    }
    delta[half] = sum_over_lanes(delta[half], 4);
  }
  // Weights of the tile of keys, zero where a row does not see.
  const auto weigh = [&](Accumulator(&scores)[S::kScoreTiles]) {
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
        // At −1e5 float32 has no digits for the logarithm of a sum; the logit itself is as forward rounded it.
        if (block.is_own(row, column)) logit = float(double(logit - kOwnPositionPenalty) - log_sum[i / 2]);
        else logit -= float(log_sum[i / 2]);
        x = share[i / 2] == 0 ? 0.0f : share[i / 2] * expf(logit);
      }
  };
  if (!c.trax) {
    float sums[2] = {0, 0};
    block.for_each_key_tile(k, v, [&] {
      Accumulator weights[S::kScoreTiles], of_weights[S::kScoreTiles];
      weigh(weights);
      score_rows<S>(of_weights, g, v);
#pragma unroll
      for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i / 2] += weights[t].x[i] * of_weights[t].x[i];
    });
    for (int half = 0; half < 2; ++half) delta[half] = sum_over_lanes(sums[half], 4) * float(c.rounds);
  }
  Accumulator of_query[S::kTiles];
  block.for_each_key_tile(k, v, [&] {
    Accumulator weights[S::kScoreTiles];
    weigh(weights);
    store_scores<S>(weights, block.scores, [](int, int, float x) { return x; });
    __syncthreads();
    add_transposed_product<S>(block.scores, g, block.key_positions, c.value_dim,
                              c.of_value + block.index * c.length * c.value_dim);
    {
      // Of the logits, times what the key is x times of: so it is one factor for x as a query and as a key.
      Accumulator of_weights[S::kScoreTiles];
      score_rows<S>(of_weights, g, v);
#pragma unroll
      for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          weights[t].x[i] *= (of_weights[t].x[i] - delta[i / 2]) * block.key_scales[t * 8 + Accumulator::column(i)];
    }
    __syncthreads();
    store_scores<S>(weights, block.scores, [](int, int, float x) { return x; });
    __syncthreads();
    apply_scores<S>(of_query, block.scores, k);
    add_transposed_product<S>(block.scores, q, block.key_positions, c.head_dim, c.of_key + block.index * c.length * c.head_dim);
  });
  float* to = c.of_query + block.index * c.length * c.head_dim;
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t position = block.query_positions[warp() * 16 + Accumulator::row(i)];
      const int column = t * 8 + Accumulator::column(i);
      if (position >= 0 && column < c.head_dim) atomicAdd(to + int64_t(position) * c.head_dim + column, of_query[t].x[i]);
    }
}

// x as a query, and through its key x·scale, whose scale depends on x itself. A warp a position.
template <class E>
__global__ void lsh_store_gradients(LshCall c) {
  const int64_t row = int64_t(blockIdx.x) * (blockDim.x / kWarp) + warp();
  if (row >= c.batch * c.heads * c.length) return;  // whole warps
  const int64_t index = row / c.length, position = row % c.length;
  const auto at = [&](const Tensor4& t) {
    return static_cast<E*>(t.data) + index / c.heads * t.batch_stride + index % c.heads * t.head_stride + position * t.row_stride;
  };
  const E* x = at(c.qk);
  const float *of_query = c.of_query + row * c.head_dim, *of_key = c.of_key + row * c.head_dim;
  float squares = 0, along = 0, zero = 0;
  for (int d = lane(); d < c.head_dim; d += kWarp) {
    const float entry = to_float(x[d]);
    squares += entry * entry, along += entry * of_key[d], zero += entry * 0;
  }
  squares = sum_over_lanes(squares), along = sum_over_lanes(along);
  const bool finite = sum_over_lanes(zero) == 0;
  // ∂/∂x of x·scale(x): the scale falls with what lies along x.
  const float scale = finite ? key_scale(c, squares) * sqrtf(float(c.head_dim)) : 0;
  const float factor = finite ? along * scale * scale / (c.trax ? float(c.head_dim) : 1.0f) : 0;
  E* to = at(c.qk_gradient);
  for (int d = lane(); d < c.head_dim; d += kWarp)
    to[d] = from_float<E>(of_query[d] + of_key[d] - (finite ? to_float(x[d]) * factor : 0.0f));
  E* to_v = at(c.v_gradient);
  for (int m = lane(); m < c.value_dim; m += kWarp) to_v[m] = from_float<E>(c.of_value[row * c.value_dim + m]);
}

}  // namespace attn::cuda
