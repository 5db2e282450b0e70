// The memory of one case on the CPU: a count of what tensors take, a bound on it, and what the process takes.
#pragma once

#include <cstdint>

namespace attnbench {

// Counts what LibTorch's CPU allocator hands out while it lives; at most one lives at a time. It does not see scratch memory that
// libraries allocate by themselves, which shows in the resident set only.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  int64_t current_bytes() const;  // in use now, of what was allocated since the counter was made
  int64_t peak_bytes() const;     // the maximum of that
  int64_t largest_bytes() const;  // the largest single allocation
  // Sets the peak and the largest allocation to those of what is in use now.
  void forget_peak();
};

// While it lives, an allocation fails that would take the process more than `extra_bytes` above its present size. Running out of
// memory is then an exception that names the bytes asked for, and the machine's other processes are safe.
class MemoryBound {
 public:
  explicit MemoryBound(int64_t extra_bytes);
  ~MemoryBound();
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;

 private:
  uint64_t previous_;
};

// The resident set of this process, and its maximum since reset_peak_resident_bytes(); -1 where the system does not tell.
int64_t resident_bytes();
int64_t peak_resident_bytes();
// Returns false where the system does not let the maximum be reset.
bool reset_peak_resident_bytes();

}  // namespace attnbench
