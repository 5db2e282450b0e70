// Attention to a cache of keys and values with NEON.
#include "attn/cpu/vector_cached_attention.h"

namespace attn::cpu {

const CachedAttentionKernels* cached_attention_neon(ElementType element) {
  static constexpr CachedAttentionKernels float32{"neon", CachedAttention<Neon>::attend};
  return by_element_type<CachedAttentionKernels>(element, &float32, nullptr, nullptr);
}

}  // namespace attn::cpu
