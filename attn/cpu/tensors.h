// Converts LibTorch's tensors to the form that CPU kernels take, provides scratch memory for each thread, and divides decoding
// steps among threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "attn/cpu/rows.h"
#include "attn/decoding.h"

namespace attn::cpu {

// The tensor [B,H,T,dim] itself if its rows are contiguous, otherwise a contiguous copy.
inline at::Tensor with_dense_rows(const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous(); }

// The rows of one (batch entry, head) of x [B,H,T,dim], where index = batch entry · H + head; null for an undefined tensor.
inline Rows rows_of_head(const at::Tensor& x, int64_t index) {
  if (!x.defined()) return {};
  // A decoding step asks for the rows of every head, so sizes and strides are read in one piece each.
  const auto strides = x.strides();
  const auto heads = x.sizes()[1], batch = index / heads, head = index % heads;
  return {static_cast<char*>(x.data_ptr()) + int64_t(x.element_size()) * (batch * strides[0] + head * strides[1]), strides[2]};
}

// `numbers` elements of scratch memory for each of LibTorch's threads.
class ThreadScratch {
 public:
  ThreadScratch(int64_t numbers, const at::TensorOptions& options)
      : memory_(at::empty({at::get_num_threads(), numbers}, options)) {}
  // The memory of the calling thread.
  void* for_this_thread() const {
    return static_cast<char*>(memory_.data_ptr()) + memory_.element_size() * at::get_thread_num() * memory_.stride(0);
  }

 private:
  at::Tensor memory_;
};

// How many threads run a decoding step of states that have so many bytes.
inline int64_t step_workers(int64_t state_bytes) {
  constexpr int64_t kMinBytesForThreads = 1 << 20;  // one thread processes fewer before another is awake
  return state_bytes < kMinBytesForThreads ? 1 : at::get_num_threads();
}

// Runs a step that was bound for `workers` threads, for all heads of all batch entries.
inline void run_step(BoundStep& step, int64_t heads, int64_t workers) {
  if (workers == 1) step.run(0, heads, 0);
  else at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) { step.run(begin, end, at::get_thread_num()); });
}

}  // namespace attn::cpu
