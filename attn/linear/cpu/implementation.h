// Linear attention on the CPU. The implementations register themselves with linear_implementations().
#pragma once

#include "attn/cpu/instruction_set.h"
#include "attn/linear/cpu/kernels.h"
#include "attn/linear/implementation.h"

namespace attn::cpu {

// The kernels of an instruction set; null if this build or this machine does not have them, or there are none for the element
// type.
const LinearKernels* linear_kernels(InstructionSet set, ElementType element);

}  // namespace attn::cpu
