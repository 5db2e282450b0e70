// The forward pass of LSH attention: output [B,H,N,M], and log_sum_exp [B·H,R,N] of each query's logits in each round.
//
// Each kernel launch computes one round. A block takes up to S::kRows queries of a chunk and computes an online softmax over
// tiles of keys. Rounds are launched one after another. Each merges its rows into partial_output, and the last one writes the
// output. Within a launch, one block writes each position. For merging, only two numbers per position are stored in `merged`,
// whatever the number of rounds. Shared memory is laid out as in block.cuh, with 3 row tiles: q, k, v.
#pragma once

#include "attn/lsh/cuda/block.cuh"

namespace attn::cuda {

// The factors that merge a new round with the rounds before it: their output is multiplied by `previous`, and that of the new
// round by `share`. Sums of exponentials are stored relative to the largest exponent, because a log-sum-exp near −1e5, the
// penalty of the own position, has too few digits left.
struct RoundShares {
  double previous, share;

  // Merges a round's log-sum-exp into `merged`, two numbers of LshParams::merged. `first` is true for the first round.
  __device__ static RoundShares join(double* merged, bool first, double log_sum_exp) {
    const double before = first ? -HUGE_VAL : merged[0], sum = first ? 0 : merged[1];
    if (before != before || log_sum_exp != log_sum_exp) {
      const double nan = before + log_sum_exp;
      merged[0] = merged[1] = nan;
      return {nan, nan};
    }
    const double largest = before > log_sum_exp ? before : log_sum_exp;
    merged[0] = largest;
    merged[1] = sum;
    if (largest == -HUGE_VAL) return {0, 0};
    const double previous = sum * exp(before - largest), added = exp(log_sum_exp - largest);
    merged[1] = previous + added;
    return {previous / merged[1], added / merged[1]};
  }
};

// Computes one round. A thread works on two rows of its warp's 16, `half` 0 and 1.
template <class S>
__global__ void __launch_bounds__(S::kThreads) lsh_forward(LshParams params, int64_t round) {
  const int64_t query_tiles = (params.chunk + S::kRows - 1) / S::kRows;
  const LshBlock<S, Pass::forward> block(params, round, int64_t(blockIdx.x) / query_tiles, int64_t(blockIdx.x) % query_tiles);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2];
  block.load_queries(q);
  const auto queries = block.queries();
  Accumulator out[S::kTiles];
  // Of the lane's two rows: the largest logit, the sum of the exponentials of the lane's keys, and 1 if the row sees a key that
  // is not finite.
  float largest[2] = {-HUGE_VALF, -HUGE_VALF}, sum[2] = {0, 0}, not_finite[2] = {0, 0};
  block.for_each_key_tile(k, v, [&](bool, int64_t) {
    Accumulator scores[S::kScoreTiles];
    score_rows<S>(scores, q, k);
    float max[2] = {largest[0], largest[1]};
#pragma unroll
    for (int t = 0; t < S::kScoreTiles; ++t) {
      const auto keys = block.keys(t);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = scores[t].x[i];
        x = block.sees(queries, keys, i) ? block.logit(x, queries, keys, i) : -HUGE_VALF;
        max[i / 2] = fmaxf(max[i / 2], x);
      }
    }
    if (block.any_key_not_finite())
#pragma unroll 1
      for (int t = 0; t < S::kScoreTiles; ++t) {
        const auto keys = block.keys(t);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (block.sees(queries, keys, i) && block.key_not_finite[t * 8 + Accumulator::column(i)]) not_finite[i / 2] = 1;
      }
    float factor[2], origin[2];  // a row that has seen no key has exponentials relative to 0
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      max[half] = max_over_lanes(max[half], 4);
      origin[half] = max[half] == -HUGE_VALF ? 0 : max[half];
      factor[half] = fast_exp(largest[half] - origin[half]);
      largest[half] = max[half];
      sum[half] *= factor[half];
    }
#pragma unroll
    for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = scores[t].x[i];
        x = fast_exp(x - origin[i / 2]);
        sum[i / 2] += x;
      }
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) out[t].x[i] *= factor[i / 2];
    weigh_rows<S>(out, scores, v);
  });
#pragma unroll
  for (int half = 0; half < 2; ++half) sum[half] = sum_over_lanes(sum[half], 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = block.query_row(half);
    const bool sees_not_finite = max_over_lanes(not_finite[half], 4) > 0;
    const int32_t position = block.query_positions[row];
    if (lane() % 4 != 0 || position < 0) continue;
    const bool sees = largest[half] != -HUGE_VALF;
    double log_sum_exp = sees ? double(largest[half]) + log(double(sum[half])) : -HUGE_VAL;
    if (sees && (sees_not_finite || block.query_not_finite[row])) log_sum_exp = double(nanf(""));
    params.log_sum_exp[block.by_position(position)] = log_sum_exp;
    const float own_sum = sees ? sum[half] : 1;
    float previous = 1, share = log_sum_exp != log_sum_exp ? nanf("") : 1 / (own_sum * float(params.rounds));
    if (params.trax && params.rounds > 1) {
      const auto factors =
          RoundShares::join(params.merged + 2 * (block.index * params.length + position), round == 0, log_sum_exp);
      previous = float(factors.previous);
      share = float(factors.share) / own_sum;
    }
    block.previous_factor[row] = previous;
    block.share[row] = share;
  }
  const auto position_of = [&](int t) { return block.query_positions[warp() * 16 + t]; };
  // store_rows() has barriers of the warp before it calls this.
  const auto with_rounds_before = [&](float x, int t, int column) {
    const int row = warp() * 16 + t;
    const float before = round == 0
                             ? 0.0f
                             : params.partial_output[(block.index * params.length + position_of(t)) * params.value_dim + column] *
                                   block.previous_factor[row];
    return before + x * block.share[row];
  };
  if (round + 1 == params.rounds) {
    auto* to = block.rows(params.output);
    store_rows<S>(
        out, q, params.value_dim,
        [&](int t) { return position_of(t) < 0 ? nullptr : to + position_of(t) * params.output.row_stride; }, with_rounds_before);
  } else {
    float* to = params.partial_output + block.index * params.length * params.value_dim;
    store_rows<S, float>(
        out, q, params.value_dim,
        [&](int t) { return position_of(t) < 0 ? nullptr : to + int64_t(position_of(t)) * params.value_dim; },
        with_rounds_before);
  }
}

}  // namespace attn::cuda
