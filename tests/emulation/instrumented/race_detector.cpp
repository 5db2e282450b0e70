// Keeps the last accesses to every two bytes, and reports those that nothing orders.
#include "tests/emulation/instrumented/race_detector.h"

#include <algorithm>
#include <bit>

namespace attn::emulation {
namespace {

// The path within the project.
std::string in_project(const std::string& path) {
  for (const std::string folder : {"/attn/", "/tests/"})
    if (const auto at = path.rfind(folder); at != std::string::npos) return path.substr(at + 1);
  return path;
}

}  // namespace

void RaceDetector::launch_begins(const Launch& launch) {
  launch_ = launch;
  first_block_ = block_ + 1;
  warps_ = (launch.block.x * launch.block.y * launch.block.z + kWarp - 1) / kWarp;
  warp_epochs_.assign(warps_, 0);
  const auto granules = (launch.shared_bytes + kGranule - 1) / kGranule;
  shared_writes_.assign(granules, {});
  shared_reads_.assign(granules * warps_, {});
}

void RaceDetector::block_begins(dim3) {
  ++block_;
  ++block_epoch_;
  waits_.assign(size_t{launch_.block.x} * launch_.block.y * launch_.block.z, launch_.begins_early);
}

void RaceDetector::warp_exchanged(unsigned warp, bool orders_memory, bool whole) {
  if (orders_memory && whole) ++warp_epochs_[warp];
}

bool RaceDetector::skips(const std::source_location& at) {
  auto& file = file_names_[at.file_name()];
  if (file.empty()) file = in_project(at.file_name());
  const auto barrier = file + ":" + std::to_string(at.line());
  barriers_.insert(barrier);
  return barrier == left_out_;
}

bool RaceDetector::conflicts(const Write& before, const Access& access) const {
  if (before.block < first_block_) return false;
  if (before.block != block_) return access.space == Space::global && !(before.atomic && access.atomic);
  if (before.copy_under_way) return true;
  if (before.thread == access.thread || before.block_epoch != block_epoch_) return false;
  if (before.atomic && access.atomic) return false;
  const auto warp = access.thread / kWarp;
  return before.thread / kWarp != warp || before.warp_epoch == warp_epochs_[warp];
}

bool RaceDetector::conflicts(const Reads& before, const Access& access) const {
  if (before.block < first_block_ || (before.atomic && access.atomic)) return false;
  if (before.block != block_) return access.space == Space::global;
  if (before.block_epoch != block_epoch_) return false;
  const auto warp = access.thread / kWarp;
  if (before.warp != warp) return true;
  return before.warp_epoch == warp_epochs_[warp] && (before.lanes & ~(1u << access.thread % kWarp)) != 0;
}

RaceDetector::Write RaceDetector::as_write(const Access& access) const {
  return {block_, block_epoch_, warp_epochs_[access.thread / kWarp], access.code, uint16_t(access.thread), access.atomic, false};
}

void RaceDetector::add_read(Reads& reads, const Access& access) const {
  const auto warp = access.thread / kWarp;
  const unsigned lane = 1u << access.thread % kWarp;
  const bool same =
      reads.block == block_ && reads.block_epoch == block_epoch_ && reads.warp == warp && reads.warp_epoch == warp_epochs_[warp];
  reads = {block_,
           block_epoch_,
           warp_epochs_[warp],
           same ? reads.lanes | lane : lane,
           access.code,
           uint16_t(warp),
           access.atomic && (!same || reads.atomic)};
}

RaceDetector::GlobalCell& RaceDetector::global_cell(uintptr_t granule) {
  const auto page = granule / kPageCells;
  if (page != last_page_) {
    auto& found = pages_[page];
    if (!found) found = std::make_unique<Page>();
    last_page_ = page;
    last_ = found.get();
  }
  return last_->cells[granule % kPageCells];
}

void RaceDetector::accessed(const Access& access) {
  if (stops()) return;
  const auto first_lane = [](const Reads& reads) { return reads.warp * kWarp + unsigned(std::countr_zero(reads.lanes)); };
  // A lane of the reads that is not the accessing thread itself.
  const auto reader = [&](const Reads& reads) {
    auto others = reads;
    if (reads.block == block_ && reads.warp == access.thread / kWarp) others.lanes &= ~(1u << access.thread % kWarp);
    return first_lane(others.lanes != 0 ? others : reads);
  };
  const auto check = [&](uintptr_t byte, const Write& write, const Reads* reads, unsigned count) {
    if (conflicts(write, access)) report(access, byte, true, write.code, write.thread, write.block);
    if (!access.write) return;
    for (unsigned r = 0; r < count; ++r)
      if (reads[r].lanes != 0 && conflicts(reads[r], access))
        report(access, byte, false, reads[r].code, reader(reads[r]), reads[r].block);
  };
  if (access.space == Space::shared) {
    const auto end = std::min<uintptr_t>((access.address + access.bytes - 1) / kGranule + 1, shared_writes_.size());
    for (uintptr_t granule = access.address / kGranule; granule < end; ++granule) {
      auto* reads = shared_reads_.data() + granule * warps_;
      check(granule * kGranule, shared_writes_[granule], reads, warps_);
      if (access.write) shared_writes_[granule] = as_write(access);
      else add_read(reads[access.thread / kWarp], access);
    }
    return;
  }
  if (waits_[access.thread]) report_early(access);
  for (auto granule = access.address / kGranule; granule <= (access.address + access.bytes - 1) / kGranule; ++granule) {
    auto& cell = global_cell(granule);
    check(granule * kGranule, cell.write, cell.reads, kGlobalReads);
    if (access.write) {
      cell.write = as_write(access);
      continue;
    }
    Reads* own = std::find_if(cell.reads, cell.reads + kGlobalReads,
                              [&](const Reads& reads) { return reads.block == block_ && reads.warp == access.thread / kWarp; });
    if (own == cell.reads + kGlobalReads) own = cell.reads + cell.next++ % kGlobalReads;
    add_read(*own, access);
  }
}

void RaceDetector::report_early(const Access& access) {
  const auto text = kernel_name(launch_.kernel) + ": thread " + std::to_string(access.thread) +
                    (access.write ? " writes" : " reads") + " global memory at " + source_of(access.code) +
                    ", before it has waited for the kernel before this one";
  if (reported_.insert(text).second) reports_.push_back(text);
}

void RaceDetector::misaligned(const Access& access) {
  const auto text = kernel_name(launch_.kernel) + ": thread " + std::to_string(access.thread) + " accesses " +
                    std::to_string(access.bytes) + " bytes at an address that is not a multiple of that, at " +
                    source_of(access.code);
  if (reported_.insert(text).second) reports_.push_back(text);
}

void RaceDetector::copy_begins(const void* to, const void* from, size_t bytes) {
  AccessObserver::copy_begins(to, from, bytes);
  AccessObserver::copy_ends(to, from, bytes);  // checks and stores the write
  const auto first = size_t(static_cast<const char*>(to) - running->shared_begin);
  for (size_t byte = first; byte < first + bytes; byte += kGranule) shared_writes_[byte / kGranule].copy_under_way = true;
}
void RaceDetector::copy_ends(const void* to, const void* from, size_t bytes) {
  const auto first = size_t(static_cast<const char*>(to) - running->shared_begin);
  for (size_t byte = first; byte < first + bytes; byte += kGranule) shared_writes_[byte / kGranule].copy_under_way = false;
  AccessObserver::copy_ends(to, from, bytes);
}

void RaceDetector::report(const Access& access, uintptr_t byte, bool before_writes, uint32_t before_code, unsigned before_thread,
                          uint32_t before_block) {
  const auto kernel = kernel_name(launch_.kernel);
  const auto lines =
      kernel + std::to_string(std::min(access.code, before_code)) + "," + std::to_string(std::max(access.code, before_code));
  if (!reported_.insert(lines).second) return;
  const auto thread_text = [](unsigned thread) {
    return "thread " + std::to_string(thread) + " (warp " + std::to_string(thread / kWarp) + ", lane " +
           std::to_string(thread % kWarp) + ")";
  };
  const auto block_text = [&](uint32_t block) { return "block " + std::to_string(block - first_block_); };
  reports_.push_back(kernel + ": in " + block_text(block_) + ", " + thread_text(access.thread) +
                     (access.write ? " writes" : " reads") + " byte " + std::to_string(byte) + " of " +
                     (access.space == Space::shared ? "shared" : "global") + " memory at " + source_of(access.code) +
                     ", and nothing orders this after " + thread_text(before_thread) +
                     (before_block == block_ ? "" : " of " + block_text(before_block)) + (before_writes ? " wrote" : " read") +
                     " it at " + source_of(before_code));
}

}  // namespace attn::emulation
