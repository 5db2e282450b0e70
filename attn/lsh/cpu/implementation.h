// LSH attention on the CPU.
#pragma once

#include "attn/lsh/cpu/kernels.h"
#include "attn/lsh/implementation.h"

namespace attn::cpu {

// The kernels that request.wanted names: "portable", "avx2" or "avx512". "auto" chooses the best instruction set for float32 and
// bfloat16 and the portable kernels for float64, and is null for other dtypes and devices. Throws c10::ValueError when the named
// kernels cannot compute the request.
const LshKernels* find_lsh_kernels(const ImplementationRequest& request);

// The implementation that runs them, or null.
const LshImplementation* find_lsh(const ImplementationRequest& request);

}  // namespace attn::cpu
