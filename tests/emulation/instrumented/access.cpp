// Receives the calls that the compiler inserts at each access, and names the places in the sources.
#include "tests/emulation/instrumented/access.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

// Set by the linker: where the program, with its static data, begins and ends in memory.
extern "C" const char __executable_start, _end;

namespace attn::emulation {
namespace {

struct Range {
  const char *begin, *end;
  bool contains(const char* p) const { return p >= begin && p < end; }
};

// The stack of the thread that launches kernels, which holds their arguments.
Range host_stack() {
  static thread_local const Range range = [] {
    pthread_attr_t attributes;
    void* low = nullptr;
    size_t size = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    return Range{static_cast<const char*>(low), static_cast<const char*>(low) + size};
  }();
  return range;
}

// Calls work(access) for an access to shared or global memory.
template <class Work>
void classify(const void* address, size_t bytes, bool write, bool atomic, const void* caller, const Work& work) {
  const Running* at = running;
  if (at == nullptr || observer == nullptr) return;
  const auto* p = static_cast<const char*>(address);
  // The order is that of how frequent they are.
  if (Range{at->stack_begin, at->stack_end}.contains(p) || Range{at->warps_begin, at->warps_end}.contains(p)) return;
  const auto code = uint32_t(static_cast<const char*>(caller) - &__executable_start);
  if (Range{at->shared_begin, at->shared_end}.contains(p))
    return work({Space::shared, uintptr_t(p - at->shared_begin), unsigned(bytes), write, atomic, code, at->thread});
  if (Range{at->threads_begin, at->threads_end}.contains(p)) return;
  if (Range{&__executable_start, &_end}.contains(p) || host_stack().contains(p)) return;
  work({Space::global, reinterpret_cast<uintptr_t>(p), unsigned(bytes), write, atomic, code, at->thread});
}

void report(const void* address, size_t bytes, bool write, bool may_be_misaligned, const void* caller) {
  classify(address, bytes, write, /*atomic=*/false, caller, [&](const Access& access) {
    auto* to = static_cast<AccessObserver*>(observer);
    if (!may_be_misaligned && reinterpret_cast<uintptr_t>(address) % bytes != 0) to->misaligned(access);
    to->accessed(access);
  });
}

std::string output_of(const std::string& command) {
  std::string text;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::array<char, 512> part{};
  while (pipe && fgets(part.data(), int(part.size()), pipe.get())) text += part.data();
  return text;
}

std::string hex(uint32_t code) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%x", code);
  return text.data();
}
// What addr2line says of a place in the program, in lines.
std::vector<std::string> address_to_lines(uint32_t code, const std::string& options) {
  const auto text =
      output_of("addr2line -e /proc/" + std::to_string(getpid()) + "/exe " + options + " " + hex(code) + " 2>/dev/null");
  std::vector<std::string> lines;
  for (size_t from = 0, to = 0; (to = text.find('\n', from)) != std::string::npos; from = to + 1)
    lines.push_back(text.substr(from, to - from));
  return lines;
}

}  // namespace

void AccessObserver::copy_begins(const void*, const void* from, size_t bytes) {
  if (from == nullptr) return;
  classify(from, bytes, /*write=*/false, /*atomic=*/false, __builtin_return_address(0),
           [&](const Access& access) { accessed(access); });
}
void AccessObserver::copy_ends(const void* to, const void*, size_t bytes) {
  classify(to, bytes, /*write=*/true, /*atomic=*/false, __builtin_return_address(0),
           [&](const Access& access) { accessed(access); });
}
void AccessObserver::atomic_access(const void* to, size_t bytes) {
  for (const bool write : {false, true})
    classify(to, bytes, write, /*atomic=*/true, __builtin_return_address(0), [&](const Access& access) { accessed(access); });
}

std::string source_of(uint32_t code) {
  static std::map<uint32_t, std::string> known;
  auto& source = known[code];
  if (!source.empty()) return source;
  source = hex(code);
  // The address is that of the instruction after the call. Of functions that were inlined into each other, the innermost comes
  // first.
  for (const auto& line : address_to_lines(code - 1, "-i")) {
    for (const std::string folder : {"/attn/", "/tests/"})
      if (const auto at = line.rfind(folder); at != std::string::npos && line.find("tests/emulation/cuda.") == std::string::npos)
        return source = line.substr(at + 1, line.find(' ') - at - 1);
  }
  return source;
}

std::string kernel_name(const void* kernel) {
  if (kernel == nullptr) return "a kernel";
  static std::map<const void*, std::string> known;
  auto& name = known[kernel];
  if (!name.empty()) return name;
  Dl_info info{};
  if (dladdr(kernel, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == kernel) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status),
                                                           &std::free);
    name = status == 0 ? text.get() : info.dli_sname;
  } else {
    const auto lines = address_to_lines(uint32_t(static_cast<const char*>(kernel) - &__executable_start), "-f -C");
    name = lines.empty() ? "a kernel" : lines[0];
  }
  // Removes the type of the result, the namespace and the parameters, which are not part of the template's arguments.
  int depth = 0;
  size_t begin = 0, end = name.size();
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    else if (name[i] == '>') --depth;
    else if (depth == 0 && (name[i] == ' ' || name[i] == ':') && end == name.size()) begin = i + 1;
    else if (depth == 0 && name[i] == '(' && name.compare(i, 11, "(anonymous ") != 0 && end == name.size()) end = i;
  }
  return name = name.substr(begin, end - begin);
}

}  // namespace attn::emulation

using attn::emulation::report;

// What code that is compiled with -fsanitize=thread calls. The names are those of ThreadSanitizer.
extern "C" {
#define ATTN_ACCESSES(bytes)                                                                                          \
  void __tsan_read##bytes(void* p) { report(p, bytes, false, false, __builtin_return_address(0)); }                   \
  void __tsan_write##bytes(void* p) { report(p, bytes, true, false, __builtin_return_address(0)); }                   \
  void __tsan_volatile_read##bytes(void* p) { report(p, bytes, false, false, __builtin_return_address(0)); }          \
  void __tsan_volatile_write##bytes(void* p) { report(p, bytes, true, false, __builtin_return_address(0)); }          \
  void __tsan_unaligned_read##bytes(void* p) { report(p, bytes, false, true, __builtin_return_address(0)); }          \
  void __tsan_unaligned_write##bytes(void* p) { report(p, bytes, true, true, __builtin_return_address(0)); }          \
  void __tsan_unaligned_volatile_read##bytes(void* p) { report(p, bytes, false, true, __builtin_return_address(0)); } \
  void __tsan_unaligned_volatile_write##bytes(void* p) { report(p, bytes, true, true, __builtin_return_address(0)); }
ATTN_ACCESSES(1)
ATTN_ACCESSES(2)
ATTN_ACCESSES(4)
ATTN_ACCESSES(8)
ATTN_ACCESSES(16)
void __tsan_read_range(void* p, size_t bytes) { report(p, bytes, false, true, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t bytes) { report(p, bytes, true, true, __builtin_return_address(0)); }
void __tsan_init() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
