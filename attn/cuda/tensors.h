// Converts LibTorch's tensors to the form that CUDA kernels take.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <string>

#include "attn/cuda/strided_tensor.h"
#include "attn/cuda/tile_dim.h"

namespace attn::cuda {

constexpr int64_t kVectorBytes = 16;  // kernels for tensor cores load and store rows in vectors of this size

// The memory and strides of x [B,H,T,dim]; null for an undefined tensor. x must stay alive as long as the result is used.
inline StridedTensor strided(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

// The tensor [B,H,T,dim] itself if each of its rows is contiguous and begins at a multiple of kVectorBytes, and if the bytes from
// one row to the next fit an int; otherwise a contiguous copy.
inline at::Tensor with_aligned_rows(const at::Tensor& x) {
  const auto aligned = [&](int64_t elements) { return elements * int64_t(x.element_size()) % kVectorBytes == 0; };
  const bool fits = x.stride(3) == 1 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kVectorBytes == 0 &&
                    aligned(x.stride(0)) && aligned(x.stride(1)) && aligned(x.stride(2)) &&
                    x.stride(2) <= std::numeric_limits<int>::max() / int64_t(x.element_size());
  return fits ? x : x.clone(at::MemoryFormat::Contiguous);
}

// Why the kernels for tensor cores do not support rows of these sizes; empty if they do.
inline std::string why_not_tiles(at::ScalarType dtype, int64_t head_dim, int64_t value_dim) {
  const auto bytes = int64_t(c10::elementSize(dtype));
  if (tile_dim(head_dim, value_dim) > 0 && head_dim * bytes % kVectorBytes == 0 && value_dim * bytes % kVectorBytes == 0)
    return "";
  return "needs head_dim and value_dim of at most 128, with rows of a multiple of 16 bytes, not " + std::to_string(head_dim) +
         " and " + std::to_string(value_dim);
}

// Why a kernel that needs this much shared memory per block does not run on a device; empty if it does. `pass` is the name of
// what the kernel computes, as in "in the backward pass".
inline std::string why_not_shared_memory(size_t needed, size_t available, const char* pass) {
  if (needed <= available) return "";
  return "needs " + std::to_string((needed + 1023) / 1024) + " KiB of shared memory per block in the " + pass +
         " pass, and this device has " + std::to_string(available / 1024) + " KiB";
}

}  // namespace attn::cuda
