// Adds up the accesses of each kernel as its blocks and warps make them.
#include "tests/emulation/instrumented/access_counter.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace attn::emulation {

AccessCounts& AccessCounts::operator+=(const AccessCounts& other) {
  launches += other.launches;
  blocks += other.blocks;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  accessed_bytes += other.accessed_bytes;
  shared_accesses += other.shared_accesses;
  shared_cycles += other.shared_cycles;
  conflict_cycles += other.conflict_cycles;
  barriers += other.barriers;
  return *this;
}

AccessCounts AccessCounter::total() const {
  AccessCounts sum;
  for (const auto& [kernel, counts] : counts_) sum += counts;
  return sum;
}

void AccessCounter::launch_begins(const Launch& launch) {
  current_ = &counts_[kernel_name(launch.kernel)];
  ++current_->launches;
  shared_.assign((launch.block.x * launch.block.y * launch.block.z + kWarp - 1) / kWarp, {});
}
void AccessCounter::block_begins(dim3) { ++block_, ++current_->blocks, traffic_ = 0; }
void AccessCounter::block_ends() {
  for (unsigned w = 0; w < shared_.size(); ++w) count_shared(w);
}
void AccessCounter::block_synchronised() {
  ++current_->barriers;
  block_ends();
}
void AccessCounter::warp_exchanged(unsigned warp, bool, bool) { count_shared(warp); }

void AccessCounter::accessed(const Access& access) {
  if (access.space == Space::shared) {
    shared_[access.thread / kWarp].push_back(
        {access.code, uint32_t(access.address), 0, uint16_t(access.bytes), uint8_t(access.thread % kWarp)});
    return;
  }
  current_->accessed_bytes += access.bytes;
  for (auto granule = access.address / kGranule; granule <= (access.address + access.bytes - 1) / kGranule; ++granule) {
    const auto page = granule / kPageGranules;
    if (page != last_page_) {
      auto& found = pages_[page];
      if (!found) found = std::make_unique<Page>();
      last_page_ = page;
      last_ = found.get();
    }
    auto& stamp = last_->stamps[granule % kPageGranules];
    const auto cached = [&](uint32_t by, int64_t at) { return by == block_ && traffic_ - at <= kCacheBytes; };
    if (access.write && !cached(stamp.written_by, stamp.written_at)) {
      current_->bytes_written += kGranule;
      traffic_ += kGranule;
    } else if (!access.write && !cached(stamp.touched_by, stamp.touched_at)) {
      current_->bytes_read += kGranule;
      traffic_ += kGranule;
    }
    stamp.touched_by = block_;
    stamp.touched_at = traffic_;
    if (access.write) {
      stamp.written_by = block_;
      stamp.written_at = traffic_;
    }
  }
}

void AccessCounter::count_shared(unsigned warp) {
  auto& accesses = shared_[warp];
  std::stable_sort(accesses.begin(), accesses.end(),
                   [](const auto& a, const auto& b) { return std::tie(a.code, a.lane) < std::tie(b.code, b.lane); });
  for (size_t i = 1; i < accesses.size(); ++i)
    if (accesses[i].code == accesses[i - 1].code && accesses[i].lane == accesses[i - 1].lane)
      accesses[i].order = uint16_t(accesses[i - 1].order + 1);
  std::sort(accesses.begin(), accesses.end(),
            [](const auto& a, const auto& b) { return std::tie(a.code, a.order, a.lane) < std::tie(b.code, b.order, b.lane); });
  constexpr unsigned kBanks = 32, kWord = 4;
  for (size_t i = 0; i < accesses.size();) {
    size_t end = i + 1;
    while (end < accesses.size() && accesses[end].code == accesses[i].code && accesses[end].order == accesses[i].order) ++end;
    ++current_->shared_accesses;
    // Lanes with wide accesses are served in groups of 128 bytes.
    const unsigned lanes = accesses[i].bytes <= kWord ? kWarp : std::max(1U, kBanks * kWord / accesses[i].bytes);
    while (i < end) {
      std::array<std::vector<uint32_t>, kBanks> words;
      const unsigned group = accesses[i].lane / lanes;
      for (; i < end && accesses[i].lane / lanes == group; ++i)
        for (auto word = accesses[i].offset / kWord; word <= (accesses[i].offset + accesses[i].bytes - 1) / kWord; ++word) {
          auto& bank = words[word % kBanks];
          if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
        }
      const auto most = int64_t(
          std::max_element(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); })->size());
      current_->shared_cycles += most;
      current_->conflict_cycles += most - 1;
    }
  }
  accesses.clear();
}

}  // namespace attn::emulation
