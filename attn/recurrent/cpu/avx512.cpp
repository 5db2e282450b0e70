// The kernels of recurrent attention for AVX512.
#include "attn/recurrent/cpu/vector_kernels.h"

namespace attn::cpu {

const RecurrentKernels* recurrent_kernels_avx512(ElementType element) {
  static constexpr RecurrentKernels float32 = RecurrentTable<Avx512, float>::kernels("avx512");
  static constexpr RecurrentKernels bfloat16 = RecurrentTable<Avx512, BFloat16>::kernels("avx512");
  return by_element_type<RecurrentKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
