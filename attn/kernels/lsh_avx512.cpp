#include "attn/kernels/lsh_vector.h"

namespace attn::kernels {

const LshKernels* lsh_kernels_avx512(Element element) {
  static constexpr LshKernels float32 = lsh_table<Avx512, float>("avx512");
  static constexpr LshKernels bfloat16 = lsh_table<Avx512, BFloat16>("avx512");
  switch (element) {
    case Element::float32: return &float32;
    case Element::bfloat16: return &bfloat16;
    case Element::float64: return nullptr;
  }
  return nullptr;
}

}  // namespace attn::kernels
