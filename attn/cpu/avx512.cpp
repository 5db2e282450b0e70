// Attention to a cache of keys and values with AVX-512.
#include "attn/cpu/vector_cached_attention.h"

namespace attn::cpu {

const CachedAttentionKernels* cached_attention_avx512(ElementType element) {
  static constexpr CachedAttentionKernels float32{"avx512", CachedAttention<Avx512>::attend};
  return by_element_type<CachedAttentionKernels>(element, &float32, nullptr, nullptr);
}

}  // namespace attn::cpu
