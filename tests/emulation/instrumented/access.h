// Each access of an instrumented kernel to shared or global memory. The kernels are compiled with -fsanitize=thread, which makes
// them call functions __tsan_read4(address) and the like. access.cpp defines these functions itself instead of linking
// ThreadSanitizer, and passes the accesses to the emulation's observer.
#pragma once

#include <cstdint>
#include <string>

#include "tests/emulation/observer.h"

namespace attn::emulation {

enum class Space { shared, global };

struct Access {
  Space space;
  uintptr_t address;  // for shared memory, the offset in it
  unsigned bytes;
  bool write, atomic;
  uint32_t code;  // where in the program the access is, see source_of()
  unsigned thread;
};

// An observer that is also told of each access. Accesses to a thread's stack, to the parameters of a kernel and to memory of the
// emulation are left out. An asynchronous copy is two accesses, to global memory when it begins and to shared memory when it
// ends.
class AccessObserver : public Observer {
 public:
  void copy_begins(const void* to, const void* from, size_t bytes) override;
  void copy_ends(const void* to, const void* from, size_t bytes) override;
  void atomic_access(const void* to, size_t bytes) override;

  virtual void accessed(const Access& access) = 0;
  // The running thread accesses `bytes` bytes at an address that is not a multiple of that, in one instruction.
  virtual void misaligned(const Access& access) = 0;
};

// The source line of code that accesses memory, as "attn/cuda/tiles.cuh:83"; its address where the program addr2line is missing.
std::string source_of(uint32_t code);
// The name of a kernel, without its parameters.
std::string kernel_name(const void* kernel);

}  // namespace attn::emulation
