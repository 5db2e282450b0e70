// Linear attention on the CPU.
#pragma once

#include <string>

#include "attn/linear/cpu/kernels.h"
#include "attn/linear/implementation.h"

namespace attn::cpu {

// The kernels that request.wanted names: "portable", "avx2" or "avx512". "auto" chooses the best instruction set for float32 and
// bfloat16 and the portable kernels for float64, and is null where no kernels compute the feature map, the dtype or on the
// device. Throws c10::ValueError when the named kernels cannot compute the request.
const LinearKernels* find_linear_kernels(const LinearRequest& request);

// The implementation that runs them, or null.
const LinearImplementation* find_linear(const LinearRequest& request);

}  // namespace attn::cpu
