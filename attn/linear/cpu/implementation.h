// Linear attention on the CPU.
#pragma once

#include <string>

#include "attn/linear/cpu/kernels.h"
#include "attn/linear/implementation.h"

namespace attn::cpu {

// The kernels that request.wanted names: "portable", "neon", "avx2", "avx512" or, for bfloat16 and maps of single entries, "amx".
// "auto" chooses the fastest available ones for float32 and bfloat16 and the portable kernels for float64; the result is null if
// no kernels support the feature map, the dtype or the device. Throws c10::ValueError if the named kernels cannot compute the
// request.
const LinearKernels* find_linear_kernels(const LinearRequest& request);

// The implementation that runs the kernels of find_linear_kernels(), or null if that returns null.
const LinearImplementation* find_linear(const LinearRequest& request);

}  // namespace attn::cpu
