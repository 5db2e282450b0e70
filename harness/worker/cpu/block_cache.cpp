// Replaces PyTorch's allocator by one that caches large blocks when they are freed.
#include "harness/worker/cpu/block_cache.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <bit>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace attnbench {
namespace {

// Smaller blocks are cached by the system's allocator itself.
constexpr size_t kMinBytes = 64 << 10;

// The size of the block for a tensor of so many bytes, which is larger by a sixteenth at most.
size_t rounded_up(size_t bytes) {
  const auto step = std::bit_floor(bytes) / 16;
  return (bytes + step - 1) / step * step;
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kMinBytes) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    bytes = rounded_up(bytes);
    const std::lock_guard lock(mutex_);
    auto* const data = take(bytes);
    sizes_[data] = bytes;
    used_bytes_ += bytes;
    return {data, data, &release, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }

  void begin(size_t max_bytes) {
    const std::lock_guard lock(mutex_);
    max_bytes_ = max_bytes;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    max_bytes_ = 0;
    free_all();
  }
  size_t cached_bytes() const {
    const std::lock_guard lock(mutex_);
    return cached_bytes_;
  }

 private:
  static void release(void* data);

  void* take(size_t bytes) {
    auto& same_size = cached_[bytes];
    if (!same_size.empty()) {
      auto* const data = same_size.back();
      same_size.pop_back();
      cached_bytes_ -= bytes;
      return data;
    }
    while (cached_bytes_ > 0 && used_bytes_ + cached_bytes_ + bytes > max_bytes_) free_largest();
    if (cached_bytes_ == 0) return c10::alloc_cpu(bytes);
    try {
      return c10::alloc_cpu(bytes);
    } catch (const c10::Error&) {
      free_all();
      return c10::alloc_cpu(bytes);
    }
  }
  void put(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    const auto bytes = found == sizes_.end() ? 0 : found->second;
    if (bytes > 0) {
      sizes_.erase(found);
      used_bytes_ -= bytes;
    }
    if (bytes == 0 || used_bytes_ + cached_bytes_ + bytes > max_bytes_) return c10::free_cpu(data);
    cached_[bytes].push_back(data);
    cached_bytes_ += bytes;
  }
  void free_largest() {
    const auto largest = std::prev(cached_.end());
    if (!largest->second.empty()) {
      c10::free_cpu(largest->second.back());
      largest->second.pop_back();
      cached_bytes_ -= largest->first;
    }
    if (largest->second.empty()) cached_.erase(largest);
  }
  void free_all() {
    for (auto& [bytes, blocks] : cached_)
      for (auto* const data : blocks) c10::free_cpu(data);
    cached_.clear();
    cached_bytes_ = 0;
  }

  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;      // of the blocks in use
  std::map<size_t, std::vector<void*>> cached_;  // free blocks by size
  size_t used_bytes_ = 0, cached_bytes_ = 0, max_bytes_ = 0;
};

// Never destroyed, since a tensor may outlive every static object.
CachingAllocator& caching_allocator() {
  static auto* const allocator = new CachingAllocator;
  return *allocator;
}

void CachingAllocator::release(void* data) { caching_allocator().put(data); }

}  // namespace

BlockCache::BlockCache(int64_t max_bytes) {
  caching_allocator().begin(size_t(max_bytes));
  c10::SetCPUAllocator(&caching_allocator());
}
BlockCache::~BlockCache() {
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
  caching_allocator().end();
}
int64_t BlockCache::cached_bytes() const { return int64_t(caching_allocator().cached_bytes()); }

}  // namespace attnbench
