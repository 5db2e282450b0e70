// The kernels of recurrent attention for AVX2.
#include "attn/recurrent/cpu/vector_kernels.h"

namespace attn::cpu {

const RecurrentKernels* recurrent_kernels_avx2(ElementType element) {
  static constexpr RecurrentKernels float32 = RecurrentTable<Avx2, float>::kernels("avx2");
  static constexpr RecurrentKernels bfloat16 = RecurrentTable<Avx2, BFloat16>::kernels("avx2");
  return by_element_type<RecurrentKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
