// Recurrent attention on the CPU. The implementations register themselves with recurrent_implementations().
#pragma once

#include "attn/cpu/instruction_set.h"
#include "attn/recurrent/cpu/kernels.h"

namespace attn::cpu {

// The kernels of an instruction set; null if they are not available here, or if there are none for the element type.
const RecurrentKernels* recurrent_kernels(InstructionSet set, ElementType element);

}  // namespace attn::cpu
