// The kernels of linear attention, compiled for AVX-512.
#include "attn/linear/cpu/vector_kernels.h"

namespace attn::cpu {

const LinearKernels* linear_kernels_avx512(ElementType element) {
  static constexpr LinearKernels float32 = LinearTable<Avx512, float>::kernels("avx512");
  static constexpr LinearKernels bfloat16 = LinearTable<Avx512, BFloat16>::kernels("avx512");
  return by_element_type<LinearKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
