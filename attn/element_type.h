// The types of tensor elements that kernels compute with. Free of LibTorch, so that the kernels of the CPU and of CUDA share it.
#pragma once

namespace attn {

enum class ElementType { float32, float64, bfloat16, float16 };

}  // namespace attn
