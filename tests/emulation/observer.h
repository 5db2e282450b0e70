// What the emulation of CUDA tells an observer of the kernels that run, so that it can judge each access to memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "tests/emulation/cuda.h"

namespace attn::emulation {

struct Launch {
  const void* kernel;  // the address of the kernel's function; null if run_grid() was called without it
  dim3 grid, block;
  size_t shared_bytes;
  bool begins_early;  // a GPU may begin it before the kernel before it has ended
};

// Where the memory of the running thread is. Kernels also access memory that is neither shared nor global: a thread's stack,
// where its parameters are, and the emulation's own.
struct Running {
  unsigned thread = 0;  // its number in the block
  const char *stack_begin = nullptr, *stack_end = nullptr;
  const char *shared_begin = nullptr, *shared_end = nullptr;
  const char *threads_begin = nullptr, *threads_end = nullptr;  // where threadIdx and the like are
  const char *warps_begin = nullptr, *warps_end = nullptr;      // where exchanged values are
};
// Null unless a thread of a kernel is running. A variable rather than a function, since instrumented kernels read it at each
// access.
extern const Running* running;

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void launch_begins(const Launch&) {}
  virtual void launch_ends() {}
  // Whether the blocks of launches run at all.
  virtual bool runs_blocks() const { return true; }
  virtual void block_begins(dim3 /*block*/) {}
  virtual void block_ends() {}
  // All threads of the block have passed a __syncthreads().
  virtual void block_synchronised() {}
  // Lanes of a warp have passed a shuffle, a vote, a product or a __syncwarp(). Only the last of these orders accesses to memory.
  // `whole` says that all lanes of the warp took part.
  virtual void warp_exchanged(unsigned /*warp*/, bool /*orders_memory*/, bool /*whole*/) {}
  // The running thread has begun an asynchronous copy to shared memory, or has waited for one. `from` is null for zeros.
  virtual void copy_begins(const void* /*to*/, const void* /*from*/, size_t /*bytes*/) {}
  virtual void copy_ends(const void* /*to*/, const void* /*from*/, size_t /*bytes*/) {}
  // The running thread has waited for the end of the kernel before this one.
  virtual void previous_kernel_ended() {}
  virtual void atomic_access(const void* /*to*/, size_t /*bytes*/) {}
  // Whether the running thread goes on at this __syncthreads() or __syncwarp() as if it were not there.
  virtual bool skips(const std::source_location&) { return false; }
  // Whether the launch is to end at once, by std::runtime_error, when the running thread waits next.
  virtual bool stops() const { return false; }
};

// Null for none. The observer must live until another one is set.
void set_observer(Observer* observer);
extern Observer* observer;

}  // namespace attn::emulation
