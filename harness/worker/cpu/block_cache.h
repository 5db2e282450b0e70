// A cache of memory blocks between one call and the next, as a GPU's caching allocator has one. It is what the axis value
// `allocation = kept` means on the CPU.
#pragma once

#include <cstdint>

namespace attnbench {

// While it lives, large blocks that tensors on the CPU free stay with the process for later tensors of the same size. Without it,
// the system's allocator maps such blocks anew at each call, and a good part of the call's time is that of page faults, in which
// the kernel (and on virtual machines the host as well) clears the pages. At most one lives at a time.
class BlockCache {
 public:
  // Caches at most `max_bytes`, and frees all of them before an allocation fails.
  explicit BlockCache(int64_t max_bytes);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  int64_t cached_bytes() const;
};

}  // namespace attnbench
