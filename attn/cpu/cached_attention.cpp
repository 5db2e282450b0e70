// Attention to a cache without vector instructions, and the choice among the kernels.
#include "attn/cpu/cached_attention.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "attn/cpu/instruction_set.h"
#include "attn/cpu/kernel_family.h"
#include "attn/cpu/kernel_table.h"

namespace attn::cpu {
namespace {

const KernelFamily<CachedAttentionKernels, ImplementationRequest>& cached_attention_family() {
  static const KernelFamily<CachedAttentionKernels, ImplementationRequest> all{
      .members = {{InstructionSet::avx512, cached_attention_avx512},
                  {InstructionSet::avx2, cached_attention_avx2},
                  {InstructionSet::neon, cached_attention_neon},
                  {InstructionSet::portable, cached_attention_portable}}};
  return all;
}

void attend(const CachedAttentionParams& p) {
  float max = p.sink;
  for (int64_t j = 0; j < p.key_len; ++j) {
    float score = 0;
    for (int64_t d = 0; d < p.head_dim; ++d) score += p.q[d] * p.k[j * p.head_dim + d];
    p.scores[j] = score * p.scale;
    max = std::max(max, p.scores[j]);
  }
  float sum = p.sink == -INFINITY ? 0 : std::exp(p.sink - max);
  std::fill_n(p.output, p.value_dim, 0.0f);
  for (int64_t j = 0; j < p.key_len; ++j) {
    const float weight = std::exp(p.scores[j] - max);
    sum += weight;
    for (int64_t m = 0; m < p.value_dim; ++m) p.output[m] += weight * p.v[j * p.value_dim + m];
  }
  for (int64_t m = 0; m < p.value_dim; ++m) p.output[m] /= sum;
}

}  // namespace

const CachedAttentionKernels* cached_attention_portable(ElementType element) {
  static constexpr CachedAttentionKernels float32{"portable", attend};
  return by_element_type<CachedAttentionKernels>(element, &float32, nullptr, nullptr);
}

const CachedAttentionKernels& cached_attention_kernels(InstructionSet set) {
  const auto* const kernels = cached_attention_family().table(set, ElementType::float32);
  TORCH_CHECK(kernels, "cached attention has no kernels for ", name_of(set));
  return *kernels;
}

}  // namespace attn::cpu
