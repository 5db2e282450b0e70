// Reuses large memory blocks from one call to the next, as a GPU's caching allocator does. This implements `allocation = kept` on
// the CPU.
#pragma once

#include <cstdint>

namespace attnbench {

// As long as it exists, a block of at least 64 KiB that a tensor on the CPU frees is cached for later tensors of about the same
// size: sizes are rounded up by at most a sixteenth, so that tensors which grow by a row in each decoding step find a block.
// Without it, the system's allocator maps such blocks anew in each call, and a good part of the call's time is spent in page
// faults, in which the operating system (and on virtual machines the host as well) clears the pages. At most one may exist at a
// time.
class BlockCache {
 public:
  // Keeps cached blocks and blocks in use together within `max_bytes`: where a new block would exceed that, cached blocks are
  // freed first, the largest ones before smaller ones. 0 caches nothing. When the system refuses an allocation, all cached blocks
  // are freed and it is tried again.
  explicit BlockCache(int64_t max_bytes);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  int64_t cached_bytes() const;
};

}  // namespace attnbench
