// Attention to a cache of keys and values with AVX2.
#include "attn/cpu/vector_cached_attention.h"

namespace attn::cpu {

const CachedAttentionKernels* cached_attention_avx2(ElementType element) {
  static constexpr CachedAttentionKernels float32{"avx2", CachedAttention<Avx2>::attend};
  return by_element_type<CachedAttentionKernels>(element, &float32, nullptr, nullptr);
}

}  // namespace attn::cpu
