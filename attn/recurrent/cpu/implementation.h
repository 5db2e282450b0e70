// Recurrent attention on the CPU. The implementations register themselves with recurrent_implementations().
#pragma once

#include "attn/cpu/instruction_set.h"
#include "attn/recurrent/cpu/kernels.h"

namespace attn::cpu {

// The kernels of an instruction set; null if this build or this machine does not have them, or there are none for the element
// type.
const RecurrentKernels* recurrent_kernels(InstructionSet set, ElementType element);

}  // namespace attn::cpu
