// The CPU's kernels of one operator: a table for each instruction set and element type, and which of them computes a problem.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <map>
#include <string>

#include "attn/cpu/instruction_set.h"
#include "attn/implementations.h"

namespace attn::cpu {

// Each function returns null for element types that it has no kernels for.
template <class Kernels>
struct KernelFamily {
  const char* operator_name;  // begins the error messages
  const Kernels* (*portable)(ElementType);
  const Kernels* (*avx2)(ElementType);
  const Kernels* (*avx512)(ElementType);

  const Kernels* table(InstructionSet set, ElementType element) const {
    if (set == InstructionSet::avx512) return avx512(element);
    return set == InstructionSet::avx2 ? avx2(element) : portable(element);
  }

  // The table named by request.wanted. "auto" chooses the best instruction set for float32 and bfloat16, and the portable kernels
  // for float64; it is null where there are no kernels. Throws c10::ValueError when the named kernels cannot compute the request.
  //
  // `task` names in error messages what is computed; `computes_task` says whether the kernels do so at all.
  const Kernels* find(const ImplementationRequest& request, const std::string& task, bool computes_task) const {
    const auto& wanted = request.wanted;
    const auto element = element_type_of(request.dtype);
    const bool possible = computes_task && element && portable(*element) && request.device == c10::DeviceType::CPU;
    if (wanted == "auto") {
      if (!possible) return nullptr;
      return table(element == ElementType::float64 ? InstructionSet::portable : choose_instruction_set(wanted), *element);
    }
    const auto set = choose_instruction_set(wanted);
    TORCH_CHECK_VALUE(possible, operator_name, ": kernel '", wanted, "' does not compute ", task, " in ", request.dtype, " on ",
                      c10::DeviceTypeName(request.device, /*lower_case=*/true), "; 'composed' does");
    const auto* kernels = table(set, *element);
    TORCH_CHECK_VALUE(kernels, operator_name, ": kernel '", wanted, "' does not compute in ", request.dtype,
                      "; 'portable' and 'composed' do");
    return kernels;
  }
};

// The implementation that runs these kernels, or null for null. There is one for each table of the family.
template <class Implementation, class Kernels>
const Implementation* implementation_of(const KernelFamily<Kernels>& family, const Kernels* kernels) {
  static const auto implementations = [&] {
    std::map<const Kernels*, Implementation> all;
    for (const auto set : available_instruction_sets())
      for (const auto element : {ElementType::float32, ElementType::float64, ElementType::bfloat16})
        if (const auto* table = family.table(set, element)) all.emplace(table, *table);
    return all;
  }();
  return kernels ? &implementations.at(kernels) : nullptr;
}

}  // namespace attn::cpu
