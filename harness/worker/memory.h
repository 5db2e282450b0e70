// Memory of one case on the CPU: what tensors take, what the process takes, and a bound on both.
#pragma once

#include <cstdint>

namespace attnbench {

// Counts what LibTorch's CPU allocator hands out while it lives. At most one at a time. Scratch that libraries take
// behind LibTorch's back is not seen; the resident set tells of it.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  int64_t current_bytes() const;  // alive now, of what was allocated since the counter began
  int64_t peak_bytes() const;     // most alive at once
  int64_t largest_bytes() const;  // largest single allocation
  // Peak and largest become those of what is alive now.
  void forget_peak();
};

// While it lives, an allocation that would take the process more than `extra_bytes` above its present size fails, so that
// running out is an exception that names the bytes asked for and not the end of the machine.
class MemoryBound {
 public:
  explicit MemoryBound(int64_t extra_bytes);
  ~MemoryBound();
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;

 private:
  uint64_t previous_;
};

// Resident set of this process and its peak since reset_peak_resident_bytes(); -1 where the system does not tell.
int64_t resident_bytes();
int64_t peak_resident_bytes();
bool reset_peak_resident_bytes();

}  // namespace attnbench
