// The kernels that compute the states that the splits of a sequence begin with.
//
// sum_states computes the state of each split alone, and scan_states adds the states up along the splits, so that no block waits
// for another. Global memory holds one state for each split, [heads, splits, kDim·kDim + kDim] in float32: the matrix, then
// the vector.
//
//   sum_states   one block for each head and split; shared memory as block.cuh describes it, with 2 row tiles
//   scan_states  one thread for each number of each head's state; no shared memory
#pragma once

#include "attn/linear/cuda/tensor_cores/block.cuh"

namespace attn::cuda {

template <class S>
struct SumStatesNeeds {
  static constexpr size_t kSharedBytes = linear_shared_bytes<S>(/*tiles=*/2, /*states=*/0, /*numbers=*/0);
};

// Writes the state of each split alone, S and Z of its keys, to params.states. kShifted says that v is v′.
template <class S, bool kShifted>
__global__ void __launch_bounds__(LinearShape<S>::kThreads, kMinBlocks<S>) sum_states(LinearParams params) {
  using L = LinearShape<S>;
  LinearBlock<S> block(params);
  const int end = block.visible;
  const auto begin_loads = [&](int first, int buffer) {
    block.begin_load(block.tile(0, buffer), kK, first, end);
    block.begin_load(block.tile(1, buffer), kV, first, end);
    end_copy_group();
  };
  if (end > 0) begin_loads(0, 0);
  OwnState<S> own;
  int buffer = 0;
  for (int first = 0; first < end; first += L::kRows) {
    block.begin_chunk();
    auto *k = block.tile(0, buffer), *v = block.tile(1, buffer);
    wait_for_copies<0>();
    block.finish_features(k, kK, first, end);
    block.template finish_values<kShifted>(v, first, end);
    __syncthreads();
    const bool more = first + L::kRows < end;
    if (L::kBuffers == 2 && more) begin_loads(first + L::kRows, 1 - buffer);
    block.add_to_state(own, k, v, [&](int) { return block.ones(); });
    if (L::kBuffers == 2) {
      buffer = 1 - buffer;
    } else {
      __syncthreads();
      if (more) begin_loads(first + L::kRows, 0);
    }
  }
  block.store_state(own, block.global_state(params.states, block.split));
}

// What scan_states makes of the states of the splits: the state of each split becomes the sum of the states before it, or of the
// states after it, or the state of the first split becomes the sum of all.
enum class Scan { before, after, all };

// Adds the states up along the splits, in place. A state has `size` numbers, and `numbers` = heads · size; each thread
// adds up one of them.
inline __global__ void scan_states(float* states, int64_t size, int64_t splits, int64_t numbers, Scan scan) {
  wait_for_previous_kernel();
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
