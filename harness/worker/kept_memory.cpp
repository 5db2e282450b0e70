#include "harness/worker/kept_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_map>
#include <vector>

namespace attnbench {
namespace {

// Smaller blocks the system's allocator keeps by itself.
constexpr size_t kLeastBytes = 64 << 10;

class KeepingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLeastBytes) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    const std::lock_guard lock(mutex_);
    auto* const data = take(bytes);
    sizes_[data] = bytes;
    return {data, data, &release, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }

  void begin(size_t most_bytes) {
    const std::lock_guard lock(mutex_);
    most_bytes_ = most_bytes;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    most_bytes_ = 0;
    give_back();
  }
  size_t kept_bytes() const {
    const std::lock_guard lock(mutex_);
    return kept_bytes_;
  }

 private:
  static void release(void* data);

  void* take(size_t bytes) {
    auto& same_size = kept_[bytes];
    if (!same_size.empty()) {
      auto* const data = same_size.back();
      same_size.pop_back();
      kept_bytes_ -= bytes;
      return data;
    }
    if (kept_bytes_ == 0) return c10::alloc_cpu(bytes);
    try {
      return c10::alloc_cpu(bytes);
    } catch (const c10::Error&) {
      give_back();
      return c10::alloc_cpu(bytes);
    }
  }
  void put(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    const auto bytes = found == sizes_.end() ? 0 : found->second;
    if (bytes > 0) sizes_.erase(found);
    if (bytes == 0 || kept_bytes_ + bytes > most_bytes_) return c10::free_cpu(data);
    kept_[bytes].push_back(data);
    kept_bytes_ += bytes;
  }
  void give_back() {
    for (auto& [bytes, blocks] : kept_)
      for (auto* const data : blocks) c10::free_cpu(data);
    kept_.clear();
    kept_bytes_ = 0;
  }

  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;  // of what tensors hold
  std::unordered_map<size_t, std::vector<void*>> kept_;
  size_t kept_bytes_ = 0, most_bytes_ = 0;
};

// Never destroyed: a tensor may outlive everything else.
KeepingAllocator& keeping_allocator() {
  static auto* const allocator = new KeepingAllocator;
  return *allocator;
}

void KeepingAllocator::release(void* data) { keeping_allocator().put(data); }

}  // namespace

KeptMemory::KeptMemory(int64_t most_bytes) {
  keeping_allocator().begin(size_t(most_bytes));
  c10::SetCPUAllocator(&keeping_allocator());
}
KeptMemory::~KeptMemory() {
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
  keeping_allocator().end();
}
int64_t KeptMemory::kept_bytes() const { return int64_t(keeping_allocator().kept_bytes()); }

}  // namespace attnbench
