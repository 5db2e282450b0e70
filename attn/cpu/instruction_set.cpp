#include "attn/cpu/instruction_set.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace attn::cpu {

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::portable: return "portable";
    case InstructionSet::avx2: return "avx2";
    case InstructionSet::avx512: return "avx512";
  }
  return "";
}

const std::vector<InstructionSet>& available_instruction_sets() {
  static const auto sets = [] {
    std::vector<InstructionSet> found{InstructionSet::portable};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      found.push_back(InstructionSet::avx2);
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vl"))
        found.push_back(InstructionSet::avx512);
    }
#endif
    return found;
  }();
  return sets;
}

InstructionSet choose_instruction_set(const std::string& wanted) {
  const auto& sets = available_instruction_sets();
  if (wanted == "auto") return sets.back();
  std::string names;
  for (const auto set : sets) {
    if (wanted == name_of(set)) return set;
    names += (names.empty() ? "" : ", ") + std::string(name_of(set));
  }
  TORCH_CHECK_VALUE(false, "kernel '", wanted, "' is not available here; expected auto or one of: ", names);
}

}  // namespace attn::cpu
