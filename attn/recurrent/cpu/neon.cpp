// The kernels of recurrent attention for NEON.
#include "attn/recurrent/cpu/vector_kernels.h"

namespace attn::cpu {

const RecurrentKernels* recurrent_kernels_neon(ElementType element) {
  static constexpr RecurrentKernels float32 = RecurrentTable<Neon, float>::kernels("neon");
  static constexpr RecurrentKernels bfloat16 = RecurrentTable<Neon, BFloat16>::kernels("neon");
  return by_element_type<RecurrentKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
