// The kernels of sparse attention for NEON.
#include "attn/cpu/simd.h"

#include "attn/sparse/cpu/vector_kernels.h"

namespace attn::cpu {

const SparseKernels* sparse_kernels_neon(ElementType element) {
  static constexpr auto float32 = sparse_table<Neon, float>("neon");
  static constexpr auto bfloat16 = sparse_table<Neon, BFloat16>("neon");
  return by_element_type<SparseKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
