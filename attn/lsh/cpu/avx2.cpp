// The kernels of LSH attention, compiled for AVX2.
#include "attn/lsh/cpu/vector_kernels.h"

namespace attn::cpu {

const LshKernels* lsh_kernels_avx2(ElementType element) {
  static constexpr LshKernels float32 = lsh_table<Avx2, float>("avx2");
  static constexpr LshKernels bfloat16 = lsh_table<Avx2, BFloat16>("avx2");
  return by_element_type<LshKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
