// LinearLaunch: which kernels of linear attention run for a pass, and in what order.
#pragma once

#include <algorithm>

#include "attn/cuda/launch.cuh"
#include "attn/cuda/stream.h"
#include "attn/linear/cuda/splits.h"
#include "attn/linear/cuda/tensor_cores/backward.cuh"
#include "attn/linear/cuda/tensor_cores/forward.cuh"
#include "attn/linear/cuda/tensor_cores/states.cuh"

namespace attn::cuda {

template <class S>
class LinearLaunch {
 public:
  LinearLaunch(const LinearParams& params, const StreamLauncher& launch) : params_(params), launch_(launch) {}

  // The largest shared memory of a block in a pass.
  static constexpr size_t shared_bytes(Pass pass) {
    return std::max(SumStatesNeeds<S>::kSharedBytes,
                    pass == Pass::forward ? ForwardNeeds<S>::kSharedBytes
                                          : std::max(BackwardNeeds<S>::kSharedBytes, SumQueryStatesNeeds<S>::kSharedBytes));
  }

  void forward() const {
    for_each_group([&](const LinearParams& params) {
      begin_keys</*kShifted=*/false>(params);
      launch_(cuda::forward<S>, blocks(params), kThreads, ForwardNeeds<S>::kSharedBytes, params);
    });
  }
  void backward() const {
    for_each_group([&](const LinearParams& params) {
      begin_keys</*kShifted=*/true>(params);
      launch_(backward_queries<S>, blocks(params), kThreads, BackwardNeeds<S>::kSharedBytes, params);
      if (params.query_states != nullptr) {
        if constexpr (!kQueriesSumStates<S>)
          launch_(sum_query_states<S>, blocks(params), kThreads, SumQueryStatesNeeds<S>::kSharedBytes, params);
        scan(params, params.query_states, params.causal ? Scan::after : Scan::all);
      }
      launch_(backward_keys<S>, blocks(params), kThreads, BackwardNeeds<S>::kSharedBytes, params);
    });
  }
  // How many blocks of the main kernels of a pass a multiprocessor of the current GPU holds at once.
  static int64_t blocks_per_multiprocessor(Pass pass) {
    const auto of = [](auto* kernel, size_t shared_bytes) {
      return StreamLauncher::blocks_per_multiprocessor(kernel, kThreads, shared_bytes);
    };
    if (pass == Pass::forward) return of(cuda::forward<S>, ForwardNeeds<S>::kSharedBytes);
    return std::min(of(backward_queries<S>, BackwardNeeds<S>::kSharedBytes),
                    of(backward_keys<S>, BackwardNeeds<S>::kSharedBytes));
  }

 private:
  static constexpr int kThreads = LinearShape<S>::kThreads;
  static int64_t blocks(const LinearParams& params) { return heads(params) * params.splits; }
  // The heads of the group that begins with first_head.
  static int64_t heads(const LinearParams& params) {
    return std::min(params.heads_at_once, params.batch * params.heads - params.first_head);
  }
  template <class Work>
  void for_each_group(const Work& work) const {
    auto params = params_;
    for (; params.first_head < params.batch * params.heads; params.first_head += params.heads_at_once) work(params);
  }
  // Computes S and Z that the splits begin with.
  template <bool kShifted>
  void begin_keys(const LinearParams& params) const {
    if (params.states == nullptr) return;
    launch_(sum_states<S, kShifted>, blocks(params), kThreads, SumStatesNeeds<S>::kSharedBytes, params);
    scan(params, params.states, params.causal ? Scan::before : Scan::all);
  }
  void scan(const LinearParams& params, float* states, Scan scan) const {
    constexpr int64_t kScanThreads = 256, kSize = state_numbers(S::kDim);
    static_assert(kSize % 16 == 0);
    const int64_t numbers = heads(params) * kSize;
    launch_(scan_states, (numbers + kScanThreads - 1) / kScanThreads, int(kScanThreads), size_t{0}, states, kSize, params.splits,
            numbers, scan);
  }

  const LinearParams& params_;
  const StreamLauncher& launch_;
};

}  // namespace attn::cuda
