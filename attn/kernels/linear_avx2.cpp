#include "attn/kernels/linear_vector.h"

namespace attn::kernels {

const LinearKernels* linear_kernels_avx2(Element element) {
  static constexpr LinearKernels float32 = LinearTable<Avx2, float>::kernels("avx2");
  static constexpr LinearKernels bfloat16 = LinearTable<Avx2, BFloat16>::kernels("avx2");
  switch (element) {
    case Element::float32: return &float32;
    case Element::bfloat16: return &bfloat16;
    case Element::float64: return nullptr;
  }
  return nullptr;
}

}  // namespace attn::kernels
