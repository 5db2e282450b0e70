// Which vector instructions the CPU kernels use.
#pragma once

#include <string>
#include <vector>

namespace attn::kernels {

enum class InstructionSet { portable, avx2, avx512 };

const char* name_of(InstructionSet set);

// Those that this build has and this processor runs, best last; portable is always there.
const std::vector<InstructionSet>& available_instruction_sets();

// "auto": the best available. Throws c10::ValueError for a name that is unknown or a set that is not available here, listing
// those that are.
InstructionSet choose_instruction_set(const std::string& wanted);

}  // namespace attn::kernels
