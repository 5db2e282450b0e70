// The kernels that compute the states that the splits of a sequence begin with.
//
// sum_states computes the state of each split alone, and scan_states adds the states up along the splits, so that no block waits
// for another. Global memory holds one state for each split, [batch·heads, splits, kDim·kDim + kDim] in float32: the matrix, then
// the vector.
//
//   sum_states   one block for each head and split; shared memory as block.cuh describes it, with 2 row tiles
//   scan_states  one thread for each number of each head's state; no shared memory
#pragma once

#include "attn/linear/cuda/block.cuh"

namespace attn::cuda {

// Writes the state of each split alone to params.states: S and Z of its keys or, if from_queries, R and Y of its queries.
template <class S>
__global__ void __launch_bounds__(S::kThreads) sum_states(LinearParams params, bool from_queries) {
  const LinearBlock<S> block(params, 2);
  auto *left = block.tile[0], *right = block.tile[1];
  block.load_state(nullptr);
  const int64_t length = from_queries ? params.query_len : params.key_len, end = block.end(length);
  for (int64_t first = block.begin(length); first < end; first += S::kRows) {
    __syncthreads();
    if (from_queries) {
      block.load_normalizers(first, end, /*with_gradients=*/true);
      __syncthreads();
      block.load_features(left, params.q, first, end);
      block.load_scaled_gradients(right, first, end);
    } else {
      block.load_features(left, params.k, first, block.min_of(end, block.visible));
      block.load_values(right, first);
    }
    __syncthreads();
    block.add_to_state(left, right, [&](int t) { return from_queries ? block.grad_normalizer[t] : 1.0f; });
  }
  __syncthreads();
  block.store_state(block.global_state(block.split));
}

// What scan_states makes of the states of the splits: the state of each split becomes the sum of the states before it, or of the
// states after it, or the state of the first split becomes the sum of all.
enum class Scan { before, after, all };

// Adds the states up along the splits, in place. A state has `size` numbers, and `numbers` = batch · heads · size; each thread
// adds up one of them.
inline __global__ void scan_states(float* states, int64_t size, int64_t splits, int64_t numbers, Scan scan) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, index = i / size;
  if (i >= numbers) return;
  states += index * splits * size + i % size;
  float sum = 0;
  for (int64_t s = 0; s < splits; ++s) {
    float* state = states + (scan == Scan::after ? splits - 1 - s : s) * size;
    const float own = *state;
    if (scan != Scan::all) *state = sum;
    sum += own;
  }
  if (scan == Scan::all) *states = sum;
}

}  // namespace attn::cuda
