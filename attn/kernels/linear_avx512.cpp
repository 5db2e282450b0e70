#include "attn/kernels/linear_vector.h"

namespace attn::kernels {

const LinearKernels* linear_kernels_avx512(Element element) {
  static constexpr LinearKernels float32 = LinearTable<Avx512, float>::kernels("avx512");
  static constexpr LinearKernels bfloat16 = LinearTable<Avx512, BFloat16>::kernels("avx512");
  switch (element) {
    case Element::float32: return &float32;
    case Element::bfloat16: return &bfloat16;
    case Element::float64: return nullptr;
  }
  return nullptr;
}

}  // namespace attn::kernels
