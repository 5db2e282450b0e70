// Which kernels of linear.cuh run, in what order, for one call.
//
// Launch: launch(kernel, blocks, threads, shared bytes, arguments…) puts a kernel on the stream.
#pragma once

#include "attn/linear/cuda/kernels.cuh"
#include "attn/linear/cuda/splits.h"

namespace attn::cuda {

template <class S, class Launch>
class LinearLaunch {
 public:
  LinearLaunch(const LinearCall& call, const Launch& launch) : c_(call), launch_(launch) {}

  void forward() {
    sum(/*of_queries=*/false, c_.causal ? Scan::before : Scan::all);
    launch_(cuda::forward<S>, blocks(), S::kThreads, linear_shared_bytes<S>(3), c_);
  }
  void backward() {
    sum(/*of_queries=*/false, c_.causal ? Scan::before : Scan::all);
    launch_(cuda::backward_queries<S>, blocks(), S::kThreads, linear_shared_bytes<S>(4), c_);
    sum(/*of_queries=*/true, c_.causal ? Scan::behind : Scan::all);
    launch_(cuda::backward_keys<S>, blocks(), S::kThreads, linear_shared_bytes<S>(4), c_);
  }

 private:
  int64_t blocks() const { return c_.batch * c_.heads * c_.splits; }
  void sum(bool of_queries, Scan scan) {
    if (!c_.states) return;
    constexpr int64_t kThreads = 256, kNumbers = state_numbers(S::kDim);
    static_assert(kNumbers % 16 == 0);
    launch_(sum_states<S>, blocks(), S::kThreads, linear_shared_bytes<S>(2), c_, of_queries);
    const int64_t numbers = c_.batch * c_.heads * kNumbers;
    launch_(scan_states, (numbers + kThreads - 1) / kThreads, int(kThreads), size_t{0}, c_.states, kNumbers, c_.splits, numbers,
            scan);
  }

  const LinearCall& c_;
  const Launch& launch_;
};

}  // namespace attn::cuda
