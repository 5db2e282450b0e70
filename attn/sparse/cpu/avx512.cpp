// The kernels of sparse attention for AVX-512.
#include "attn/cpu/simd.h"

#include "attn/sparse/cpu/vector_kernels.h"

namespace attn::cpu {

const SparseKernels* sparse_kernels_avx512(ElementType element) {
  static constexpr auto float32 = sparse_table<Avx512, float>("avx512");
  static constexpr auto bfloat16 = sparse_table<Avx512, BFloat16>("avx512");
  return by_element_type<SparseKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
