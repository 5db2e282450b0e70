// Softmax attention of one query to a cache of keys and values, for decoding on the CPU in float32.
#pragma once

#include <cstdint>

#include "attn/element_type.h"

namespace attn::cpu {

enum class InstructionSet;  // instruction_set.h, whose includes do not belong into kernels (simd.h says why)

// One head. All rows are contiguous; strides are in numbers.
struct CachedAttentionParams {
  const float* q;  // [head_dim]
  const float* k;  // [key_len, head_dim]
  const float* v;  // [key_len, value_dim]
  float* output;   // [value_dim]: softmax(q kᵀ · scale) v, whose denominator also has the sink
  float* scores;   // scratch memory for cached_attention_scratch(key_len) numbers
  int64_t key_len, head_dim, value_dim;
  float scale;
  float sink = -__builtin_inff();  // a score without a value; −∞ for none
};

constexpr int64_t cached_attention_scratch(int64_t key_len) { return (key_len + 15) / 16 * 16; }

struct CachedAttentionKernels {
  const char* name;  // the name in records, such as "avx512"
  void (*attend)(const CachedAttentionParams&);
};

// The kernels of each instruction set; null for element types other than float32. The functions of the vector kernels are weak
// symbols: in a build without the kernels of an instruction set, the address of its function is null.
const CachedAttentionKernels* cached_attention_portable(ElementType element);
[[gnu::weak]] const CachedAttentionKernels* cached_attention_avx2(ElementType element);
[[gnu::weak]] const CachedAttentionKernels* cached_attention_avx512(ElementType element);
[[gnu::weak]] const CachedAttentionKernels* cached_attention_neon(ElementType element);

// The kernels of this instruction set for float32, never null for an available one.
const CachedAttentionKernels& cached_attention_kernels(InstructionSet set);

}  // namespace attn::cpu
