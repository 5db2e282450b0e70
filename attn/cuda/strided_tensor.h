// How CUDA kernels see a tensor: its memory and its strides. This header does not include LibTorch.
#pragma once

#include <cstdint>

namespace attn::cuda {

// A tensor [batch, heads, positions, dim] whose rows are contiguous. Strides are in elements.
struct StridedTensor {
  void* data;
  int64_t batch_stride, head_stride, row_stride;
};

}  // namespace attn::cuda
