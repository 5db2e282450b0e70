// The CPU memory of one case: a counter of the memory of tensors, a bound on the memory of the process, and its resident set.
#pragma once

#include <cstdint>

namespace attnbench {

// Counts the bytes that LibTorch's CPU allocator hands out as long as the counter exists; at most one may exist at a time. It
// does not see scratch memory that libraries allocate by themselves, which only the resident set includes.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  int64_t current_bytes() const;  // in use now, of what was allocated since the counter was made
  int64_t peak_bytes() const;     // the maximum of that
  int64_t largest_bytes() const;  // the largest single allocation
  // Sets the peak to the bytes in use now, and the largest allocation to the largest of those in use.
  void reset_peak();
};

// As long as it exists, an allocation fails if it would make the process more than `extra_bytes` larger than it was at the start.
// Running out of memory is then an exception that names the requested bytes, and does not affect other processes.
class MemoryBound {
 public:
  explicit MemoryBound(int64_t extra_bytes);
  ~MemoryBound();
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;

 private:
  uint64_t previous_;
};

// The resident set of this process in bytes, and its maximum since reset_peak_resident_bytes(); -1 if the system does not report
// them.
int64_t resident_bytes();
int64_t peak_resident_bytes();
// Returns false if the system does not allow the reset.
bool reset_peak_resident_bytes();

}  // namespace attnbench
