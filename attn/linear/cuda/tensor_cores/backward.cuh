// The backward pass of linear attention: grad_q [B,H,N,D], grad_k [B,H,L,D] and grad_v [B,H,L,M], causal or not.
//
// Two kernels, each with one block for each head and split: backward_queries goes forward over the positions, as the forward pass
// does, and backward_keys goes back over them. block.cuh describes the shared memory; the 4 row tiles are φ(q), φ(k), v and g′.
#pragma once

#include "attn/linear/cuda/tensor_cores/block.cuh"

namespace attn::cuda {

// Whether backward_queries also sums R and Y of its split, for which accumulators of tiles of 128 columns do not leave room;
// sum_query_states computes them there.
template <class S>
constexpr bool kQueriesSumStates = S::kDim <= 64;

template <class S>
constexpr int kMinBackwardBlocks = S::kDim < 128 || S::kSixteenBits ? 2 : 1;

// How many float32 numbers take as much memory as the weights of a chunk's rows.
template <class S>
constexpr int kWeightNumbers = LinearBlock<S>::kWeights * int(sizeof(typename S::Tile)) / int(sizeof(float));

// What the kernels need for a block.
template <class S>
struct BackwardNeeds {
  using L = LinearShape<S>;
  static constexpr int kTiles = 4, kStates = 1, kNumbers = L::kDim + L::kRows * (1 + L::kColumnGroups) + kWeightNumbers<S>;
  static constexpr size_t kSharedBytes = linear_shared_bytes<S>(kTiles, kStates, kNumbers);
};
template <class S>
struct SumQueryStatesNeeds {
  static constexpr int kTiles = 2, kNumbers = kWeightNumbers<S>;
  static constexpr size_t kSharedBytes = linear_shared_bytes<S>(kTiles, /*states=*/0, kNumbers);
};

// Writes grad_q and δ, going forward over the positions, and R and Y of the split to query_states if kQueriesSumStates. The state
// is T = Sᵀ = Σ v φ(k)ᵀ of the keys before the chunk or, without the causal mask, of all keys.
template <class S>
__global__ void __launch_bounds__(LinearShape<S>::kThreads, kMinBackwardBlocks<S>) backward_queries(LinearParams params) {
  using L = LinearShape<S>;
  using Tile = typename S::Tile;
  LinearBlock<S> block(params);
  using Needs = BackwardNeeds<S>;
  Tile* state = block.state(Needs::kTiles, 0);
  float* z = block.numbers(Needs::kTiles, Needs::kStates);                    // Z of the keys before the chunk
  float* reciprocal = z + L::kDim;                                            // 1/normalizer of the chunk's rows
  auto* weights = reinterpret_cast<Tile*>(reciprocal + L::kRows);             // δ of the chunk's rows
  [[maybe_unused]] float* parts = reciprocal + L::kRows + kWeightNumbers<S>;  // φ(q)·grad_phi of each column group
  const int end = block.positions(params.query_len);
  typename LinearBlock<S>::Reciprocals reciprocals;
  const auto begin_loads = [&](int first, int buffer) {
    block.begin_load(block.tile(0, buffer), kQ, first, end);
    block.begin_load(block.tile(3, buffer), kGradOutput, first, end);
    if (params.causal) {
      block.begin_load(block.tile(1, buffer), kK, first, block.visible);
      block.begin_load(block.tile(2, buffer), kV, first, block.visible);
    }
    end_copy_group();
    block.load(reciprocals, first, end);
  };
  if (end > 0) begin_loads(0, 0);
  OwnState<S> own, queries;
  block.begin_transposed_state(own, z, block.first_state(params.states));
  // ε c, where c is what is taken off v, takes the place of the state's vector, so that products with g′ include ε c·g′.
  const float* shift = block.value_shift();
  if (block.owns_state())
#pragma unroll
    for (int m = 0; m < L::kStateTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        own.vector[m].x[2 * half] = params.epsilon * shift[block.state_row() + m * 16 + Accumulator::row(2 * half)];
  block.publish(own, state);

  int buffer = 0;
  for (int first = 0; first < end; first += L::kRows) {
    block.begin_chunk();
    Tile *q = block.tile(0, buffer), *k = block.tile(1, buffer), *v = block.tile(2, buffer), *g = block.tile(3, buffer);
    const bool more = first + L::kRows < end;
    wait_for_copies<0>();
    block.finish_features(q, kQ, first, end);
    block.finish_scaled_gradients(g, first, end, reciprocals, reciprocal);
    if (params.causal) {
      block.finish_features(k, kK, first, block.visible);
      block.template finish_values</*kShifted=*/true>(v, first, block.visible);
    }
    __syncthreads();
    if (L::kBuffers == 2 && more) begin_loads(first + L::kRows, 1 - buffer);
    Accumulator grad_phi[L::kColumnTiles], total;
    bool one_by_one = false;
    {
      const typename LinearBlock<S>::Left left(block.own_rows(g));
      if (params.causal)
        one_by_one = block.template multiply_seen</*kLater=*/false, /*kTotals=*/false>(grad_phi, total, left, g, v, k,
                                                                                       [](int) { return 0.0f; });
      block.template multiply_state</*kTotals=*/true>(grad_phi, total, left, state);
    }
    // δ = (ε c·g′ − φ·grad_phi) / normalizer of the lane's two rows, computed before the contribution of δ is added to grad_phi.
    float delta[2];
    block.multiply_rows(delta, grad_phi, q);
    if constexpr (L::kColumnGroups > 1) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (lane() % 4 == 0) parts[block.column / L::kColumns * L::kRows + block.row_of(2 * half)] = delta[half];
      __syncthreads();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        delta[half] = 0;
#pragma unroll
        for (int part = 0; part < L::kColumnGroups; ++part) delta[half] += parts[part * L::kRows + block.row_of(2 * half)];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = block.row_of(2 * half);
      delta[half] = (total.x[2 * half] + total.x[2 * half + 1] - delta[half]) * reciprocal[row];
      if (lane() % 4 == 0 && block.column == 0) {
        block.set_weight(weights, row, delta[half]);
        if (first + row < end) *block.of_query(kGradNormalizer, first + row) = delta[half];
      }
    }
    // Each key that the row sees contributes δ·φ(k) to grad_phi.
#pragma unroll
    for (int t = 0; t < L::kColumnTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) grad_phi[t].x[i] += delta[i / 2] * z[block.column_of(t, i)];
    if (params.causal) block.add_seen_rows(grad_phi, delta, k, one_by_one);
    if (params.causal) block.add_to_matrix(own, v, k);
    __syncthreads();  // all warps have written δ, and have read v, T and Z
    if constexpr (kQueriesSumStates<S>)
      block.add_to_state(queries, q, g, [&](int row) { return block.weights_of(weights, row); });
    block.template store_gradients</*kKeys=*/false>(grad_phi, q, v, first, end);
    if (params.causal) block.publish_matrix(own, state), block.add_rows(z, k);
    if (L::kBuffers == 2) {
      buffer = 1 - buffer;
    } else {
      __syncthreads();
      if (more) begin_loads(first + L::kRows, 0);
    }
  }
  if constexpr (kQueriesSumStates<S>)
    if (params.query_states != nullptr) block.store_state(queries, block.global_state(params.query_states, block.split));
}

// Writes the state of each split alone, R and Y of its queries, to params.query_states.
template <class S>
__global__ void __launch_bounds__(LinearShape<S>::kThreads, kMinBlocks<S>) sum_query_states(LinearParams params) {
  using L = LinearShape<S>;
  LinearBlock<S> block(params);
  const int end = block.positions(params.query_len);
  auto* weights = reinterpret_cast<typename S::Tile*>(block.numbers(SumQueryStatesNeeds<S>::kTiles, 0));  // δ of the chunk's rows
  OwnState<S> own;
  for (int first = 0; first < end; first += L::kRows) {
    block.begin_chunk();
    auto *q = block.tile(0), *g = block.tile(1);
    typename LinearBlock<S>::Reciprocals reciprocals;
    block.begin_load(q, kQ, first, end);
    block.begin_load(g, kGradOutput, first, end);
    end_copy_group();
    block.load(reciprocals, first, end);
    const float delta = block.grad_normalizer(first, end);
    if (thread() < L::kRows) block.set_weight(weights, thread(), delta);
    wait_for_copies<0>();
    block.finish_features(q, kQ, first, end);
    block.finish_scaled_gradients(g, first, end, reciprocals, nullptr);
    __syncthreads();
    block.add_to_state(own, q, g, [&](int row) { return block.weights_of(weights, row); });
    __syncthreads();
  }
  block.store_state(own, block.global_state(params.query_states, block.split));
}

// Writes grad_k and grad_v, going back over the positions. The state is R and Y of the queries after the chunk or, without the
// causal mask, of all queries.
template <class S>
__global__ void __launch_bounds__(LinearShape<S>::kThreads, kMinBackwardBlocks<S>) backward_keys(LinearParams params) {
  using L = LinearShape<S>;
  using Tile = typename S::Tile;
  using Needs = BackwardNeeds<S>;
  LinearBlock<S> block(params);
  Tile* state = block.state(Needs::kTiles, 0);
  float *y = block.numbers(Needs::kTiles, Needs::kStates), *delta_of = y + L::kDim;  // Y, and δ of the chunk's rows
  auto* weights = reinterpret_cast<Tile*>(delta_of + L::kRows);                      // δ again
  const int end = block.positions(params.key_len);
  typename LinearBlock<S>::Reciprocals reciprocals;
  float delta = 0;
  const auto begin_loads = [&](int first, int buffer) {
    block.begin_load(block.tile(1, buffer), kK, first, block.visible);
    block.begin_load(block.tile(2, buffer), kV, first, block.visible);
    if (params.causal) {
      block.begin_load(block.tile(0, buffer), kQ, first, end);
      block.begin_load(block.tile(3, buffer), kGradOutput, first, end);
      block.load(reciprocals, first, end);
      delta = block.grad_normalizer(first, end);
    }
    end_copy_group();
  };
  const int last = (end + L::kRows - 1) / L::kRows * L::kRows - L::kRows;
  if (end > 0) begin_loads(last, 0);
  OwnState<S> own;
  block.begin_state(own, block.first_state(params.query_states));
  block.publish_matrix(own, state);
  block.publish_vector(own.vector, y);

  int buffer = 0;
  for (int first = last; first >= 0; first -= L::kRows) {
    block.begin_chunk();
    Tile *q = block.tile(0, buffer), *k = block.tile(1, buffer), *v = block.tile(2, buffer), *g = block.tile(3, buffer);
    const bool more = first >= L::kRows;
    if (params.causal && thread() < L::kRows) delta_of[thread()] = delta, block.set_weight(weights, thread(), delta);
    wait_for_copies<0>();
    block.finish_features(k, kK, first, block.visible);
    block.template finish_values</*kShifted=*/true>(v, first, block.visible);
    if (params.causal) {
      block.finish_features(q, kQ, first, end);
      block.finish_scaled_gradients(g, first, end, reciprocals, nullptr);
    }
    __syncthreads();
    if (L::kBuffers == 2 && more) begin_loads(first - L::kRows, 1 - buffer);
    Accumulator none;
    {
      // grad_k = (R v + Y + Σ (g′·v + δ) φ(q)) · φ′(k)
      Accumulator grad_phi[L::kColumnTiles];
      const typename LinearBlock<S>::Left left(block.own_rows(v));
      if (params.causal)
        block.template multiply_seen</*kLater=*/true, /*kTotals=*/false>(grad_phi, none, left, v, g, q,
                                                                         [&](int query) { return delta_of[query]; });
#pragma unroll
      for (int t = 0; t < L::kColumnTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) grad_phi[t].x[i] += y[block.column_of(t, i)];
      block.multiply_transposed_state(grad_phi, left, state);
      if (L::kColumnGroups > 1) __syncthreads();  // all warps have read v
      block.template store_gradients</*kKeys=*/true>(grad_phi, k, v, first, end);
    }
    {
      // grad_v = Rᵀ φ(k) + Σ (φ(q)·φ(k)) g′
      Accumulator grad_v[L::kColumnTiles];
      const typename LinearBlock<S>::Left left(block.own_rows(k));
      if (params.causal)
        block.template multiply_seen</*kLater=*/true, /*kTotals=*/false>(grad_v, none, left, k, q, g, [](int) { return 0.0f; });
      block.template multiply_state</*kTotals=*/false>(grad_v, none, left, state);
      if (params.causal) block.add_to_state(own, q, g, [&](int row) { return block.weights_of(weights, row); });
      __syncthreads();  // all warps have read k, R, Y and δ
      block.store_visible(grad_v, k, kGradV, first, end);
    }
    if (params.causal) block.publish_matrix(own, state), block.publish_vector(own.vector, y);
    if (L::kBuffers == 2) {
      buffer = 1 - buffer;
    } else {
      __syncthreads();
      if (more) begin_loads(first - L::kRows, 0);
    }
  }
}

}  // namespace attn::cuda
