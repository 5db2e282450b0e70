// The kernels of linear attention, compiled for NEON.
#include "attn/linear/cpu/vector_kernels.h"

namespace attn::cpu {

const LinearKernels* linear_kernels_neon(ElementType element) {
  static constexpr LinearKernels float32 = LinearTable<Neon, float>::kernels("neon");
  static constexpr LinearKernels bfloat16 = LinearTable<Neon, BFloat16>::kernels("neon");
  return by_element_type<LinearKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
