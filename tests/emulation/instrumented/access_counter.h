// Counts what CUDA kernels do to memory, under the emulation.
//
// The accesses are those of the sources: nvcc may merge two of them into one instruction, or keep a value in a register. So the
// counts do not depend on the compiler that compiles the kernels for the CPU either, but for merged accesses.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/emulation/instrumented/access.h"

namespace attn::emulation {

// The counts of all launches of a kernel.
struct AccessCounts {
  int64_t launches = 0, blocks = 0;
  // Bytes of global memory that blocks read and write. A byte that a block has read or written before counts again only if the
  // block has meanwhile read and written more than kCacheBytes other bytes; otherwise it is taken to be in the cache of the
  // multiprocessor. Different blocks share nothing.
  int64_t bytes_read = 0, bytes_written = 0;
  // Bytes of all accesses to global memory.
  int64_t accessed_bytes = 0;
  // Accesses to shared memory by warps: those of the lanes at one place in the program, between two exchanges of the warp, are
  // one access. It takes a cycle for each 128 bytes of its lanes, and `conflict_cycles` more where lanes need different 4-byte
  // words of one of the 32 banks.
  int64_t shared_accesses = 0, shared_cycles = 0, conflict_cycles = 0;
  int64_t barriers = 0;  // __syncthreads() of a block

  AccessCounts& operator+=(const AccessCounts& other);
};

class AccessCounter final : public AccessObserver {
 public:
  // A chunk of 64 positions of q, k, v and g with 64 float32 columns has 64 KiB.
  static constexpr int64_t kCacheBytes = 96 << 10;

  // By the name of the kernel.
  const std::map<std::string, AccessCounts>& counts() const { return counts_; }
  AccessCounts total() const;

  void launch_begins(const Launch& launch) override;
  void block_begins(dim3 block) override;
  void block_ends() override;
  void block_synchronised() override;
  void warp_exchanged(unsigned warp, bool orders_memory, bool whole) override;
  void accessed(const Access& access) override;
  void misaligned(const Access&) override {}

 private:
  static constexpr unsigned kWarp = 32, kGranule = 2, kPageGranules = 2048;

  // When a block touched or wrote two bytes last: the number of the block over all launches, and its traffic until then.
  struct Stamp {
    uint32_t touched_by = 0, written_by = 0;
    int64_t touched_at = 0, written_at = 0;
  };
  struct Page {
    Stamp stamps[kPageGranules];
  };
  struct SharedAccess {
    uint32_t code, offset;
    uint16_t order, bytes;  // the order among the lane's accesses at this place in the program
    uint8_t lane;
  };

  void count_shared(unsigned warp);

  AccessCounts* current_ = nullptr;
  std::map<std::string, AccessCounts> counts_;
  uint32_t block_ = 0;
  int64_t traffic_ = 0;  // of the block, in bytes
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_page_ = ~uintptr_t{0};
  Page* last_ = nullptr;
  std::vector<std::vector<SharedAccess>> shared_;  // of each warp since its last exchange
};

}  // namespace attn::emulation
