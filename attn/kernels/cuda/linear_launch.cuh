// Which kernels of linear.cuh run, in what order, for one call.
//
// Launch: launch(kernel, blocks, threads, shared bytes, arguments…) puts a kernel on the stream.
#pragma once

#include "attn/kernels/cuda/linear.cuh"

namespace attn::cuda {

// Positions go in so many splits that each multiprocessor has this many blocks, but none is shorter than this.
constexpr int64_t kBlocksPerMultiprocessor = 4, kLeastSplit = 256;

struct Splits {
  int64_t length, count;
};
inline Splits split_positions(int64_t heads, int64_t positions, int64_t multiprocessors) {
  const int64_t most = (positions + kLeastSplit - 1) / kLeastSplit;
  int64_t count = (kBlocksPerMultiprocessor * multiprocessors + heads - 1) / (heads > 0 ? heads : 1);
  count = count < 1 ? 1 : count > most ? (most > 0 ? most : 1) : count;
  const int64_t length = ((positions + count - 1) / count + 63) / 64 * 64;
  return {length > 0 ? length : 64, length > 0 ? (positions + length - 1) / length : 1};
}

// The smallest padded dimension that holds both, or 0.
inline int padded_dim(int64_t head_dim, int64_t value_dim) {
  const int64_t larger = head_dim > value_dim ? head_dim : value_dim;
  for (const int dim : {16, 32, 64, 128})
    if (larger <= dim) return dim;
  return 0;
}
constexpr int64_t state_numbers(int64_t dim) { return dim * dim + dim; }

template <class S, class Launch>
class LinearLaunch {
 public:
  LinearLaunch(const LinearCall& call, const Launch& launch) : c_(call), launch_(launch) {}

  void forward() {
    sum(/*of_queries=*/false, c_.causal ? Scan::before : Scan::all);
    launch_(cuda::forward<S>, blocks(), S::kThreads, S::shared_bytes(3), c_);
  }
  void backward() {
    sum(/*of_queries=*/false, c_.causal ? Scan::before : Scan::all);
    launch_(cuda::backward_queries<S>, blocks(), S::kThreads, S::shared_bytes(4), c_);
    sum(/*of_queries=*/true, c_.causal ? Scan::behind : Scan::all);
    launch_(cuda::backward_keys<S>, blocks(), S::kThreads, S::shared_bytes(4), c_);
  }

 private:
  int64_t blocks() const { return c_.batch * c_.heads * c_.splits; }
  void sum(bool of_queries, Scan scan) {
    float* states = of_queries ? c_.query_states : c_.key_states;
    if (!states) return;
    constexpr int64_t kThreads = 256, kNumbers = state_numbers(S::kDim);
    static_assert(kNumbers % 16 == 0);
    launch_(sum_states<S>, blocks(), S::kThreads, S::shared_bytes(2), c_, of_queries);
    const int64_t numbers = c_.batch * c_.heads * kNumbers;
    launch_(scan_states, (numbers + kThreads - 1) / kThreads, int(kThreads), size_t{0}, states, kNumbers, c_.splits, numbers,
            scan);
  }

  const LinearCall& c_;
  const Launch& launch_;
};

}  // namespace attn::cuda
