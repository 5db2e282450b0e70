// The vector instructions that CPU kernels use, chosen at run time.
#pragma once

#include <string>
#include <vector>

namespace attn::cpu {

// amx stands for AVX-512 with the tiles of AMX for bfloat16 (amx_tiles.h). Only some kernels have a form for it, so it is in none
// of the lists below.
enum class InstructionSet { portable, neon, avx2, avx512, amx };

// "portable", "neon", "avx2", "avx512" or "amx": the name in options and records.
const char* name_of(InstructionSet set);

// Whether this build has kernels for the instruction set.
bool is_built(InstructionSet set);
// Why no kernels for the instruction set run here, as the end of a sentence such as "is not in this build; `make build` adds the
// kernels of all instruction sets"; empty if they do. The first call for amx asks the system for permission to use it.
std::string why_unavailable(InstructionSet set);
inline bool is_available(InstructionSet set) { return why_unavailable(set).empty(); }

// The instruction sets but amx for which this build has kernels, and those that this processor has, in ascending order of speed.
// portable is always among them.
const std::vector<InstructionSet>& built_instruction_sets();
const std::vector<InstructionSet>& processor_instruction_sets();

// The instruction sets that are built and that this processor has.
const std::vector<InstructionSet>& available_instruction_sets();

// The instruction set of this name; "auto" is the fastest available one. Throws c10::ValueError for an unknown name and for a set
// that is not available; the message lists the available ones, and says how to build a set that only the build lacks.
InstructionSet choose_instruction_set(const std::string& wanted);

}  // namespace attn::cpu
