// Asks the processor and the operating system which vector instructions can run.
#include "attn/cpu/instruction_set.h"

#include <c10/util/Exception.h>

#include <algorithm>

#if defined(ATTN_BUILT_AMX) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace attn::cpu {
namespace {

template <class T>
bool is_among(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// Whether the processor and the system let kernels use AMX for bfloat16. They need AVX-512 besides.
bool can_use_amx() {
#if defined(ATTN_BUILT_AMX) && defined(__linux__)
  static const bool available = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kTiles = 1u << 24, kTilesOfBFloat16 = 1u << 22, kConversions = 1u << 5;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) == 0 || (d & kTilesOfBFloat16) == 0) return false;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & kConversions) == 0) return false;
    if (available_instruction_sets().back() != InstructionSet::avx512) return false;
    // The system saves the tiles of a process only if the process has asked for it.
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return available;
#else
  return false;
#endif
}

}  // namespace

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::portable: return "portable";
    case InstructionSet::neon: return "neon";
    case InstructionSet::avx2: return "avx2";
    case InstructionSet::avx512: return "avx512";
    case InstructionSet::amx: return "amx";
  }
  return "";
}

const std::vector<InstructionSet>& built_instruction_sets() {
  static const std::vector<InstructionSet> sets{
      InstructionSet::portable,
#ifdef ATTN_BUILT_NEON
      InstructionSet::neon,
#endif
#ifdef ATTN_BUILT_AVX2
      InstructionSet::avx2,
#endif
#ifdef ATTN_BUILT_AVX512
      InstructionSet::avx512,
#endif
  };
  return sets;
}

const std::vector<InstructionSet>& processor_instruction_sets() {
  static const auto sets = [] {
    std::vector<InstructionSet> found{InstructionSet::portable};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      found.push_back(InstructionSet::avx2);
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vl"))
        found.push_back(InstructionSet::avx512);
    }
#elif defined(__aarch64__)
    found.push_back(InstructionSet::neon);  // every 64-bit ARM processor has it
#endif
    return found;
  }();
  return sets;
}

const std::vector<InstructionSet>& available_instruction_sets() {
  static const auto sets = [] {
    std::vector<InstructionSet> found;
    for (const auto set : processor_instruction_sets())
      if (is_built(set)) found.push_back(set);
    return found;
  }();
  return sets;
}

bool is_built(InstructionSet set) {
#ifdef ATTN_BUILT_AMX
  if (set == InstructionSet::amx) return true;
#endif
  return is_among(built_instruction_sets(), set);
}

std::string why_unavailable(InstructionSet set) {
  constexpr auto kNotHere = "is not available here: this processor or system does not have these instructions";
  if (set != InstructionSet::amx && !is_among(processor_instruction_sets(), set)) return kNotHere;
  if (!is_built(set)) return "is not in this build; `make build` adds the kernels of all instruction sets";
  return set == InstructionSet::amx && !can_use_amx() ? kNotHere : "";
}

InstructionSet choose_instruction_set(const std::string& wanted) {
  const auto& sets = available_instruction_sets();
  if (wanted == "auto") return sets.back();
  std::string names;
  for (const auto set : sets) {
    if (wanted == name_of(set)) return set;
    names += (names.empty() ? "" : ", ") + std::string(name_of(set));
  }
  for (const auto set : processor_instruction_sets())
    TORCH_CHECK_VALUE(wanted != name_of(set), "kernel '", wanted, "' is not in this build, which has ", names,
                      "; `make build` adds the kernels of all instruction sets");
  TORCH_CHECK_VALUE(false, "kernel '", wanted, "' is not available here; expected auto or one of: ", names);
}

}  // namespace attn::cpu
