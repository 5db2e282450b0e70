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
    merged[0] = largest, merged[1] = sum;
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
  const LshBlock<S> block(params, 3, round, int64_t(blockIdx.x) / query_tiles, int64_t(blockIdx.x) % query_tiles);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2];
  block.load_queries(q);
  Accumulator out[S::kTiles];
  // Of the lane's two rows: the largest logit, the sum of the exponentials, and 1 if the row sees a key that is not finite.
  float largest[2] = {-HUGE_VALF, -HUGE_VALF}, sum[2] = {0, 0}, not_finite[2] = {0, 0};
  block.for_each_key_tile(k, v, [&](bool, int64_t) {
    Accumulator scores[S::kScoreTiles];
    score_rows<S>(scores, q, k);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp() * 16 + lane() / 4 + half * 8;
      float max = largest[half];
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
          x = x * block.key_scales[column] - (block.is_own(row, column) ? float(kOwnPositionPenalty) : 0.0f);
          if (block.key_not_finite[column]) not_finite[half] = 1;
          max = x > max ? x : max;
        }
      max = max_over_lanes(max, 4);
      const float factor = max == -HUGE_VALF ? 1.0f : expf(largest[half] - max);
      float added = 0;
#pragma unroll
      for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          float& x = scores[t].x[i];
          x = x == -HUGE_VALF ? 0.0f : expf(x - max);
          added += x;
        }
      sum[half] = sum[half] * factor + sum_over_lanes(added, 4);
      largest[half] = max;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) out[t].x[half * 2] *= factor, out[t].x[half * 2 + 1] *= factor;
    }
    store_scores<S>(scores, block.scores, [](int, int, float x) { return x; });
    apply_scores<S>(out, block.scores, v);
  });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp() * 16 + lane() / 4 + half * 8;
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
      previous = float(factors.previous), share = float(factors.share) / own_sum;
    }
    block.previous_factor[row] = previous, block.share[row] = share;
  }
  const auto position_of = [&](int t) { return block.query_positions[warp() * 16 + t]; };
  // store_rows() has a barrier of the warp before it calls this.
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
