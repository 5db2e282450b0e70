// Compiles exp for AVX-512, for the tests of its accuracy.
#include "attn/cpu/simd.h"
#include "tests/support/exp_of.h"

void attn::exp_avx512(const float* x, float* to, int64_t count) {
  using V = cpu::Avx512;
  for (int64_t i = 0; i < count; i += V::kLanes) V::store(to + i, V::exp(V::load(x + i)));
}

void attn::exp_nonpositive_avx512(const float* x, float* to, int64_t count) {
  using V = cpu::Avx512;
  for (int64_t i = 0; i < count; i += V::kLanes) V::store(to + i, V::exp_nonpositive(V::load(x + i)));
}
