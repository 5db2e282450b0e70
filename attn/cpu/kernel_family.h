// The CPU kernels of one operator: a table of kernels for each instruction set and element type, and which requests each
// computes. attn/linear/cpu/implementation.cpp shows how an operator declares its family and registers it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <map>
#include <string>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "attn/implementations.h"

namespace attn::cpu {

// `Kernels` is a struct of function pointers. `Request` is the operator's own request, which derives from ImplementationRequest.
template <class Kernels, class Request>
struct KernelFamily {
  // Why kernels do not compute a request, as the end of a sentence such as "does not compute feature map 'favor'"; empty if they
  // do. It need not look at the device, the dtype and the instruction set.
  using WhyNot = std::string (*)(const Request&);

  // The kernels of one instruction set, by the name of which options and records call them.
  struct Member {
    InstructionSet set;
    // Returns the table for an element type, or null if there are no kernels for the type. It is a weak symbol, and null itself
    // in a build that has no kernels for the instruction set.
    const Kernels* (*tables)(ElementType);
    WhyNot why_not = nullptr;  // what these kernels do not compute although others of the family do
  };

  std::vector<Member> members;   // from the fastest on: "auto" takes the first that computes a request
  WhyNot why_not_any = nullptr;  // what no kernels of the family compute

  // The kernels of an instruction set; null if they are not available here, or if there are none for the element type.
  const Kernels* table(InstructionSet set, ElementType element) const {
    for (const auto& member : members)
      if (member.set == set && is_available(set)) return member.tables(element);
    return nullptr;
  }

  // Why a member does not compute the request; empty if it does.
  std::string why_not(const Member& member, const Request& request) const {
    if (request.device != c10::DeviceType::CPU)
      return std::string("runs on the CPU, not on ") + c10::DeviceTypeName(request.device, /*lower_case=*/true);
    if (auto reason = why_unavailable(member.set); !reason.empty()) return reason;
    if (why_not_any)
      if (auto reason = why_not_any(request); !reason.empty()) return reason;
    const auto element = element_type_of(request.dtype);
    if (!element || !member.tables(*element)) return std::string("does not compute in ") + c10::toString(request.dtype);
    return member.why_not ? member.why_not(request) : "";
  }
};

// What a family registers with the operator's ImplementationRegistry: an implementation of the class OnCpu, which derives from
// `Implementation` and is made from a table, for every table that is available. `family` must live as long as the registry; there
// is one for each class OnCpu.
template <class Implementation, class OnCpu, class Kernels, class Request>
std::vector<NamedImplementation<Implementation, Request>> implementations_of(const KernelFamily<Kernels, Request>& family) {
  std::vector<NamedImplementation<Implementation, Request>> named;
  for (const auto& member : family.members)
    named.push_back({.name = name_of(member.set),
                     .why_not = [all = &family, one = &member](const Request& request) { return all->why_not(*one, request); },
                     .get = [all = &family, one = &member](const Request& request) -> const Implementation* {
                       // The tables are asked for when a request needs one: some may be made on processors alone that can run
                       // them.
                       static const auto of_table = [all] {
                         std::map<const Kernels*, OnCpu> made;
                         for (const auto& other : all->members)
                           for (const auto element : {ElementType::float32, ElementType::float64, ElementType::bfloat16})
                             if (const auto* table = all->table(other.set, element)) made.emplace(table, *table);
                         return made;
                       }();
                       return &of_table.at(one->tables(*element_type_of(request.dtype)));
                     }});
  return named;
}

}  // namespace attn::cpu
