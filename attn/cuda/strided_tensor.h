// A tensor as CUDA kernels take it: its memory and strides, without LibTorch.
#pragma once

#include <cstdint>

namespace attn::cuda {

// [batch, heads, positions, dim]; the elements of a row lie side by side. Strides are in elements.
struct StridedTensor {
  void* data;
  int64_t batch_stride, head_stride, row_stride;
};

}  // namespace attn::cuda
