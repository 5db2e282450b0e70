// The kernels of sparse attention for AVX2.
#include "attn/cpu/simd.h"

#include "attn/sparse/cpu/vector_kernels.h"

namespace attn::cpu {

const SparseKernels* sparse_kernels_avx2(ElementType element) {
  static constexpr auto float32 = sparse_table<Avx2, float>("avx2");
  static constexpr auto bfloat16 = sparse_table<Avx2, BFloat16>("avx2");
  return by_element_type<SparseKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
