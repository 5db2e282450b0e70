// The kernels of LSH attention, compiled for NEON.
#include "attn/lsh/cpu/vector_kernels.h"

namespace attn::cpu {

const LshKernels* lsh_kernels_neon(ElementType element) {
  static constexpr LshKernels float32 = lsh_table<Neon, float>("neon");
  static constexpr LshKernels bfloat16 = lsh_table<Neon, BFloat16>("neon");
  return by_element_type<LshKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
