#include "attn/kernels/lsh_vector.h"

namespace attn::kernels {

const LshKernels* lsh_kernels_avx2(Element element) {
  static constexpr LshKernels float32 = lsh_table<Avx2, float>("avx2");
  static constexpr LshKernels bfloat16 = lsh_table<Avx2, BFloat16>("avx2");
  switch (element) {
    case Element::float32: return &float32;
    case Element::bfloat16: return &bfloat16;
    case Element::float64: return nullptr;
  }
  return nullptr;
}

}  // namespace attn::kernels
