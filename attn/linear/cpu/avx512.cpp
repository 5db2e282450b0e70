#include "attn/linear/cpu/vector.h"

namespace attn::kernels {

const LinearKernels* linear_kernels_avx512(Element element) {
  static constexpr LinearKernels float32 = LinearTable<Avx512, float>::kernels("avx512");
  static constexpr LinearKernels bfloat16 = LinearTable<Avx512, BFloat16>::kernels("avx512");
  return by_element<LinearKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::kernels
