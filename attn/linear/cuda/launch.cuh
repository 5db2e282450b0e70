// LinearLaunch: which kernels of linear attention run for a pass, and in what order.
#pragma once

#include "attn/cuda/launch.cuh"
#include "attn/cuda/stream.h"
#include "attn/linear/cuda/backward.cuh"
#include "attn/linear/cuda/forward.cuh"
#include "attn/linear/cuda/splits.h"
#include "attn/linear/cuda/states.cuh"

namespace attn::cuda {

template <class S>
class LinearLaunch {
 public:
  LinearLaunch(const LinearParams& params, const StreamLauncher& launch) : params_(params), launch_(launch) {}

  // The largest shared memory of a block in a pass.
  static constexpr size_t shared_bytes(Pass pass) {
    return pass == Pass::forward ? linear_shared_bytes<S>(kForwardTiles) : linear_shared_bytes<S>(kBackwardTiles);
  }

  void forward() const {
    begin_splits(/*from_queries=*/false, params_.causal ? Scan::before : Scan::all);
    launch_(cuda::forward<S>, blocks(), S::kThreads, shared_bytes(Pass::forward), params_);
  }
  void backward() const {
    begin_splits(/*from_queries=*/false, params_.causal ? Scan::before : Scan::all);
    launch_(cuda::backward_queries<S>, blocks(), S::kThreads, shared_bytes(Pass::backward), params_);
    begin_splits(/*from_queries=*/true, params_.causal ? Scan::after : Scan::all);
    launch_(cuda::backward_keys<S>, blocks(), S::kThreads, shared_bytes(Pass::backward), params_);
  }

 private:
  static constexpr int kForwardTiles = 3, kBackwardTiles = 4;  // row tiles in shared memory

  int64_t blocks() const { return params_.batch * params_.heads * params_.splits; }
  // Computes the states that the splits begin with.
  void begin_splits(bool from_queries, Scan scan) const {
    if (!params_.states) return;
    constexpr int64_t kThreads = 256, kSize = state_numbers(S::kDim);
    static_assert(kSize % 16 == 0);
    launch_(sum_states<S>, blocks(), S::kThreads, linear_shared_bytes<S>(2), params_, from_queries);
    const int64_t numbers = params_.batch * params_.heads * kSize;
    launch_(scan_states, (numbers + kThreads - 1) / kThreads, int(kThreads), size_t{0}, params_.states, kSize, params_.splits,
            numbers, scan);
  }

  const LinearParams& params_;
  const StreamLauncher& launch_;
};

}  // namespace attn::cuda
