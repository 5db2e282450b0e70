// Converts LibTorch's tensors to the form that CPU kernels take, and provides scratch memory for each thread.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "attn/cpu/rows.h"

namespace attn::cpu {

// The tensor [B,H,T,dim] itself if its rows are contiguous, otherwise a contiguous copy.
inline at::Tensor with_dense_rows(const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous(); }

// The rows of one (batch entry, head) of x [B,H,T,dim], where index = batch entry · H + head; null for an undefined tensor.
inline Rows rows_of_head(const at::Tensor& x, int64_t index) {
  if (!x.defined()) return {};
  const auto batch = index / x.size(1), head = index % x.size(1);
  return {static_cast<char*>(x.data_ptr()) + int64_t(x.element_size()) * (batch * x.stride(0) + head * x.stride(1)), x.stride(2)};
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

}  // namespace attn::cpu
