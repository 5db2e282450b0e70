#include "attn/lsh/cpu/vector.h"

namespace attn::kernels {

const LshKernels* lsh_kernels_avx512(Element element) {
  static constexpr LshKernels float32 = lsh_table<Avx512, float>("avx512");
  static constexpr LshKernels bfloat16 = lsh_table<Avx512, BFloat16>("avx512");
  return by_element<LshKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::kernels
