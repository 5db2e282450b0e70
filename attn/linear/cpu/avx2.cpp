// The kernels of linear attention, compiled for AVX2.
#include "attn/linear/cpu/vector_kernels.h"

namespace attn::cpu {

const LinearKernels* linear_kernels_avx2(ElementType element) {
  static constexpr LinearKernels float32 = LinearTable<Avx2, float>::kernels("avx2");
  static constexpr LinearKernels bfloat16 = LinearTable<Avx2, BFloat16>::kernels("avx2");
  return by_element_type<LinearKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
