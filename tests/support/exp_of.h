// Write exp(x) of `count` float32 numbers to `to`, by the vector functions exp and exp_nonpositive of an instruction set. `count`
// is a multiple of 16.
#pragma once

#include <cstdint>

namespace attn {

void exp_avx512(const float* x, float* to, int64_t count);
void exp_avx2(const float* x, float* to, int64_t count);
void exp_nonpositive_avx512(const float* x, float* to, int64_t count);
void exp_nonpositive_avx2(const float* x, float* to, int64_t count);

}  // namespace attn
