// The vector instructions that CPU kernels use, chosen at run time.
#pragma once

#include <string>
#include <vector>

namespace attn::cpu {

enum class InstructionSet { portable, neon, avx2, avx512 };

// "portable", "neon", "avx2" or "avx512".
const char* name_of(InstructionSet set);

// The instruction sets for which this build has kernels, and those that this processor has, in ascending order of speed. portable
// is always among them.
const std::vector<InstructionSet>& built_instruction_sets();
const std::vector<InstructionSet>& processor_instruction_sets();

// The instruction sets that are built and that this processor has.
const std::vector<InstructionSet>& available_instruction_sets();

// Whether this build has kernels that use AMX for bfloat16 (amx_tiles.h). Only some kernels have a form for it, so it is not one
// of the instruction sets above.
bool amx_is_built();
// Whether, besides that, this processor and the system let kernels use AMX.
bool amx_is_available();

// The instruction set of this name; "auto" is the fastest available one. Throws c10::ValueError for an unknown name and for a set
// that is not available; the message lists the available ones, and says how to build a set that only the build lacks.
InstructionSet choose_instruction_set(const std::string& wanted);

}  // namespace attn::cpu
