// The kernels of LSH attention, compiled for AVX-512.
#include "attn/lsh/cpu/vector_kernels.h"

namespace attn::cpu {

const LshKernels* lsh_kernels_avx512(ElementType element) {
  static constexpr LshKernels float32 = lsh_table<Avx512, float>("avx512");
  static constexpr LshKernels bfloat16 = lsh_table<Avx512, BFloat16>("avx512");
  return by_element_type<LshKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
