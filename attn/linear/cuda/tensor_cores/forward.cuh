// The forward pass of linear attention: output [B,H,N,M] and normalizer [B·H,N], causal or not.
//
// A block processes a head and a split. It begins with the state of the keys before the split or, without the causal mask, of all
// keys. For each chunk it adds the product of the scores of the chunk with itself and v to the product of φ(q) and the state,
// divides by the normalizer, and then adds the chunk's keys to the state. block.cuh describes the shared memory; the 3 row tiles
// are φ(q), φ(k), v.
#pragma once

#include "attn/linear/cuda/tensor_cores/block.cuh"

namespace attn::cuda {

// What `forward` needs for a block.
template <class S>
struct ForwardNeeds {
  static constexpr int kTiles = 3, kNumbers = 0;
  static constexpr size_t kSharedBytes = linear_shared_bytes<S>(kTiles, LinearShape<S>::kStateBuffers, kNumbers);
};

template <class S>
__global__ void __launch_bounds__(LinearShape<S>::kThreads, kMinBlocks<S>) forward(LinearParams params) {
  using L = LinearShape<S>;
  LinearBlock<S> block(params);
  constexpr int kTiles = ForwardNeeds<S>::kTiles;
  const int end = block.positions(params.query_len);
  const auto begin_queries = [&](int first, int buffer) { block.begin_load(block.tile(0, buffer), kQ, first, end); };
  const auto begin_keys = [&](int first, int buffer) {
    if (!params.causal) return;
    block.begin_load(block.tile(1, buffer), kK, first, block.visible);
    block.begin_load(block.tile(2, buffer), kV, first, block.visible);
  };
  if (end > 0) begin_queries(0, 0), begin_keys(0, 0), end_copy_group();
  OwnState<S> own;
  block.begin_state(own, block.first_state(params.states));
  block.publish(own, block.state(kTiles, 0));

  int buffer = 0, state = 0;
  for (int first = 0; first < end; first += L::kRows) {
    block.begin_chunk();
    typename S::Tile *q = block.tile(0, buffer), *k = block.tile(1, buffer), *v = block.tile(2, buffer);
    const bool more = first + L::kRows < end;
    wait_for_copies<0>();
    block.finish_features(q, kQ, first, end);
    if (params.causal) {
      block.finish_features(k, kK, first, block.visible);
      block.template finish_values</*kShifted=*/false>(v, first, block.visible);
    }
    __syncthreads();
    if (L::kBuffers == 2 && more) {
      begin_queries(first + L::kRows, 1 - buffer), begin_keys(first + L::kRows, 1 - buffer);
      end_copy_group();
    }
    Accumulator out[L::kColumnTiles], total;
    const typename LinearBlock<S>::Left left(block.own_rows(q));
    if (params.causal) {
      block.template multiply_seen</*kLater=*/false, /*kTotals=*/true>(out, total, left, q, k, v, [](int) { return 0.0f; });
      block.add_to_state(own, k, v, [&](int) { return block.ones(); });
    }
    block.template multiply_state<true>(out, total, left, block.state(kTiles, state));
    if (L::kBuffers == 1) {
      __syncthreads();  // all warps have read the tiles and the state
      if (more) begin_keys(first + L::kRows, 0);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float normalizer = total.x[2 * half] + total.x[2 * half + 1] + params.epsilon;
      const int position = first + block.row_of(2 * half);
      if (lane() % 4 == 0 && block.column == 0 && position < end) *block.of_query(kNormalizer, position) = normalizer;
      const float inverse = fast_reciprocal(normalizer);
#pragma unroll
      for (int t = 0; t < L::kColumnTiles; ++t) {
        out[t].x[2 * half] *= inverse;
        out[t].x[2 * half + 1] *= inverse;
      }
    }
    block.store(out, q, kOutput, first, end);
    if (params.causal) block.publish(own, block.state(kTiles, state = L::kStateBuffers - 1 - state));
    if (L::kBuffers == 1) {
      __syncthreads();  // all warps have stored their rows
      if (more) begin_queries(first + L::kRows, 0), end_copy_group();
    } else {
      buffer = 1 - buffer;
    }
  }
}

}  // namespace attn::cuda
