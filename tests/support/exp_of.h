// Calls the kernels' exp of each instruction set on `count` numbers, a multiple of 16.
#pragma once

#include <cstdint>

namespace attn {

void exp_avx512(const float* x, float* to, int64_t count);
void exp_avx2(const float* x, float* to, int64_t count);

}  // namespace attn
