// The implementations of LSH attention for the CPU.
#pragma once

#include "attn/lsh/cpu/kernels.h"
#include "attn/lsh/implementation.h"

namespace attn::cpu {

// Returns the kernels that request.wanted names: "portable", "neon", "avx2" or "avx512". "auto" chooses the best instruction set
// for float32 and bfloat16 and the portable kernels for float64, and returns null for other dtypes and devices. Throws
// c10::ValueError when the named kernels cannot compute the request.
const LshKernels* find_lsh_kernels(const ImplementationRequest& request);

// Returns the implementation that runs these kernels, or null where find_lsh_kernels() returns null.
const LshImplementation* find_lsh(const ImplementationRequest& request);

}  // namespace attn::cpu
