// The kernels' exp of each instruction set, made callable: `count` a multiple of 16.
#pragma once

#include <cstdint>

namespace attn {

void exp_avx512(const float* x, float* to, int64_t count);
void exp_avx2(const float* x, float* to, int64_t count);

}  // namespace attn
