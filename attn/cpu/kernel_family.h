// The CPU kernels of one operator: a table of kernels for each instruction set and element type, and the choice of the table that
// computes a problem.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <map>
#include <string>

#include "attn/cpu/instruction_set.h"
#include "attn/implementations.h"

namespace attn::cpu {

// `Kernels` is a struct of function pointers. The functions portable, neon, avx2 and avx512 return the table of their
// instruction set for an element type, or null if there are no kernels for the type. Except for `portable` they may be null
// themselves: this build then has no kernels for the instruction set.
template <class Kernels>
struct KernelFamily {
  const char* operator_name;  // the beginning of error messages
  const Kernels* (*portable)(ElementType);
  const Kernels* (*neon)(ElementType);
  const Kernels* (*avx2)(ElementType);
  const Kernels* (*avx512)(ElementType);

  const Kernels* table(InstructionSet set, ElementType element) const {
    const auto of = [&](const Kernels* (*tables)(ElementType)) { return tables ? tables(element) : nullptr; };
    switch (set) {
      case InstructionSet::neon: return of(neon);
      case InstructionSet::avx2: return of(avx2);
      case InstructionSet::avx512: return of(avx512);
      case InstructionSet::portable: break;
    }
    return portable(element);
  }

  // The table that request.wanted names. "auto" chooses the fastest available instruction set for float32 and bfloat16, and the
  // portable kernels for float64; the result is null if no kernels compute the request. Throws c10::ValueError if the named
  // kernels cannot compute it.
  //
  // `task` describes the computation in error messages; `computes_task` says whether the kernels support it.
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

// The implementation that runs `kernels`, a table of the family; null if `kernels` is null. There is one implementation for each
// table.
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
