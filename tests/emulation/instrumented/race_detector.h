// Finds races of CUDA kernels under the emulation, whatever the order in which the threads run.
//
// Two accesses of different threads to the same byte, at least one of them a write, are a race unless something orders them:
//   · a __syncthreads() that both threads pass in between, if they are of one block;
//   · a __syncwarp() of the whole warp in between, if they are of one warp; shuffles, votes and products order nothing, as CUDA
//     defines them, and neither does a __syncwarp() of some lanes, which this detector leaves out;
//   · both are atomic.
// Nothing orders accesses of different blocks in one launch. For every two bytes of shared memory (no element is smaller), the
// detector stores the last write, and the last reads of each warp. For global memory it stores the same of up to four warps.
//
// A kernel that may begin before the one before it has ended must wait for that: each access of a thread to global memory before
// it has waited is reported too.
//
// An asynchronous copy writes to shared memory at some time between its begin and the wait for it, so that any other access in
// between is a race.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/emulation/instrumented/access.h"

namespace attn::emulation {

// A line with a __syncthreads() or a __syncwarp(), as "attn/cuda/tiles.cuh:83".
using Barrier = std::string;

class RaceDetector final : public AccessObserver {
 public:
  // Each report is a sentence: the kernel, the block, both threads with their source lines, and the byte. Of races of the same
  // two lines in a kernel only one is reported.
  const std::vector<std::string>& reports() const { return reports_; }
  // The barriers that kernels have passed so far.
  const std::set<Barrier>& barriers() const { return barriers_; }

  // From now on, threads go on at this barrier as if it were not there, and a launch ends when a race has been found.
  void leave_out(const Barrier& barrier) { left_out_ = barrier; }

  void launch_begins(const Launch& launch) override;
  void block_begins(dim3 block) override;
  void previous_kernel_ended() override { waits_[running->thread] = false; }
  void block_synchronised() override { ++block_epoch_; }
  void warp_exchanged(unsigned warp, bool orders_memory, bool whole) override;
  void copy_begins(const void* to, const void* from, size_t bytes) override;
  void copy_ends(const void* to, const void* from, size_t bytes) override;
  bool skips(const std::source_location& at) override;
  bool stops() const override { return left_out_ && !reports_.empty(); }
  void accessed(const Access& access) override;
  void misaligned(const Access& access) override;

 private:
  static constexpr unsigned kWarp = 32, kGlobalReads = 4, kGranule = 2, kPageCells = 2048;

  // Epochs only grow, so that cells of earlier blocks and launches need no reset.
  struct Write {
    uint32_t block = 0, block_epoch = 0, warp_epoch = 0, code = 0;
    uint16_t thread = 0;
    bool atomic = false, copy_under_way = false;
  };
  struct Reads {
    uint32_t block = 0, block_epoch = 0, warp_epoch = 0, lanes = 0, code = 0;
    uint16_t warp = 0;
    bool atomic = false;
  };
  struct GlobalCell {
    Write write;
    Reads reads[kGlobalReads];
    uint8_t next = 0;  // the entry of reads that is replaced next
  };

  bool conflicts(const Write& before, const Access& access) const;
  bool conflicts(const Reads& before, const Access& access) const;
  Write as_write(const Access& access) const;
  void add_read(Reads& reads, const Access& access) const;
  GlobalCell& global_cell(uintptr_t granule);
  void report_early(const Access& access);
  void report(const Access& access, uintptr_t byte, bool before_writes, uint32_t before_code, unsigned before_thread,
              uint32_t before_block);

  Launch launch_{};
  std::vector<bool> waits_;               // whether a thread has yet to wait for the kernel before this one
  uint32_t block_ = 0, first_block_ = 0;  // blocks are counted over all launches
  uint32_t block_epoch_ = 1;
  std::vector<uint32_t> warp_epochs_;
  unsigned warps_ = 0;
  std::vector<Write> shared_writes_;
  std::vector<Reads> shared_reads_;  // [byte, warp]
  struct Page {
    GlobalCell cells[kPageCells];
  };
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_page_ = ~uintptr_t{0};
  Page* last_ = nullptr;

  std::vector<std::string> reports_;
  std::set<std::string> reported_;
  std::set<Barrier> barriers_;
  std::unordered_map<const char*, std::string> file_names_;
  std::optional<Barrier> left_out_;
};

}  // namespace attn::emulation
