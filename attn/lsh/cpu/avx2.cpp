#include "attn/lsh/cpu/vector.h"

namespace attn::kernels {

const LshKernels* lsh_kernels_avx2(Element element) {
  static constexpr LshKernels float32 = lsh_table<Avx2, float>("avx2");
  static constexpr LshKernels bfloat16 = lsh_table<Avx2, BFloat16>("avx2");
  return by_element<LshKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::kernels
