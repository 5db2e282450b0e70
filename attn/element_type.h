// The types of tensor elements that kernels support. This header does not include LibTorch, so that CPU kernels and CUDA kernels
// can share it.
#pragma once

namespace attn {

enum class ElementType { float32, float64, bfloat16, float16 };

}  // namespace attn
