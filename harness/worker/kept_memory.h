// Memory that is kept from one call to the next, as a GPU's caching allocator keeps it.
#pragma once

#include <cstdint>

namespace attnbench {

// While it lives, large blocks that tensors on the CPU give back stay with the process for tensors of the same size. Without it
// the system's allocator maps such blocks anew in each call, and a call's time is in good part that of page faults: of the
// kernel's zeroing, and on virtual machines of the host's too. At most one at a time.
class KeptMemory {
 public:
  // Keeps no more than `most_bytes`, and gives all back before an allocation fails.
  explicit KeptMemory(int64_t most_bytes);
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  int64_t kept_bytes() const;
};

}  // namespace attnbench
