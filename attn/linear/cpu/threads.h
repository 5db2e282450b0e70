// Distributes the work of linear attention over threads: heads and, if heads alone do not keep all threads busy, splits of their
// sequences. For the same inputs, results depend only on the number of threads, because the states of splits are always added in
// the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "attn/cpu/tensors.h"
#include "attn/linear/cpu/heads.h"
#include "attn/linear/cpu/kernels.h"

namespace attn::cpu {

// The positions 0 … length − 1 are divided into `count` splits of `size` positions, a multiple of kChunkRows. The last split may
// be shorter.
struct Splits {
  int64_t length, count, size;

  // At most `wanted` splits, so that no split is empty unless there are no positions.
  Splits(int64_t positions, int64_t wanted);
  int64_t begin(int64_t split) const;
  int64_t end(int64_t split) const;
};

class LinearThreads {
 public:
  // A kernel of LinearKernels: `state` is the matrix of a state, and `vector` the vector that follows it.
  using Work =
      std::function<void(const LinearHeadParams& params, int64_t begin, int64_t end, void* state, void* vector, void* scratch)>;

  LinearThreads(const LinearKernels& kernels, const LinearHeads& heads);

  // The splits of a causal pass. Each split but the first begins with the state of the positions before it, which
  // initial_states() computes.
  Splits scanned_splits(int64_t positions) const;
  // The splits of a pass in which splits do not depend on each other.
  Splits independent_splits(int64_t positions) const;

  // Calls `work` for every head and split with its state. States are [heads, splits, state size], or [heads, 1, state size] if
  // all splits of a head share one.
  void run(const Splits& splits, const at::Tensor& states, const Work& work) const;
  // The states of all positions, [heads, 1, state size]; `add` is the kernel that adds positions to a state.
  at::Tensor sum(int64_t positions, const Work& add) const;
  // The states that the splits begin with, [heads, splits, state size]: the states of the positions before each split or, if
  // `backwards`, of the positions after it.
  at::Tensor initial_states(const Splits& splits, const Work& add, bool backwards) const;
  // The sum of states [n, count, state size] over `count`: [n, 1, state size].
  at::Tensor total(const at::Tensor& states) const;

  // The index of the scale in a state.
  int64_t scale_offset() const { return heads_.padded_features() * (heads_.padded_values() + 1); }

 private:
  at::Tensor zeros(int64_t count) const;
  void* vector_of(void* state) const;
  void for_each_task(int64_t count, const std::function<void(int64_t task)>& work) const;

  const LinearHeads& heads_;
  int64_t threads_, number_bytes_, state_size_;
  ThreadScratch scratch_;
};

}  // namespace attn::cpu
