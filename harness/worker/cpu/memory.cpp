// Counts the memory of tensors with an own allocator, bounds the data segment of this process, and reads /proc.
#include "harness/worker/cpu/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <string>
#include <unordered_map>

namespace attnbench {
namespace {

// Stores the sizes of its blocks in a table and not in the blocks. Its blocks are therefore like those of the default allocator,
// and either allocator can free a block of the other by its address alone.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* const data = c10::alloc_cpu(bytes);
    if (data != nullptr) add(data, int64_t(bytes));
    return {data, data, &release, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }

  void reset() {
    const std::lock_guard lock(mutex_);
    blocks_.clear();
    current_ = peak_ = largest_ = 0;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = current_;
    largest_ = 0;
    for (const auto& [data, bytes] : blocks_) largest_ = std::max(largest_, bytes);
  }
  int64_t current() const { return read(current_); }
  int64_t peak() const { return read(peak_); }
  int64_t largest() const { return read(largest_); }

 private:
  static void release(void* data);

  int64_t read(const int64_t& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  void add(void* data, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[data] = bytes;
    current_ += bytes;
    peak_ = std::max(peak_, current_);
    largest_ = std::max(largest_, bytes);
  }
  // A block that was allocated before the last reset() is not in the table, and freeing it changes no count.
  void remove(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    current_ -= found->second;
    blocks_.erase(found);
  }

  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> blocks_;
  int64_t current_ = 0, peak_ = 0, largest_ = 0;
};

// Never destroyed, since a tensor may outlive every static object.
CountingAllocator& counting_allocator() {
  static auto* const allocator = new CountingAllocator;
  return *allocator;
}

void CountingAllocator::release(void* data) {
  counting_allocator().remove(data);
  c10::free_cpu(data);
}

// The value of the line `name` of /proc/self/status in bytes, or -1 if there is no such line.
int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == name && status >> kib) return kib * 1024;
  }
  return -1;
}

}  // namespace

AllocationCounter::AllocationCounter() {
  counting_allocator().reset();
  c10::SetCPUAllocator(&counting_allocator());
}
AllocationCounter::~AllocationCounter() { c10::SetCPUAllocator(c10::GetDefaultCPUAllocator()); }
int64_t AllocationCounter::current_bytes() const { return counting_allocator().current(); }
int64_t AllocationCounter::peak_bytes() const { return counting_allocator().peak(); }
int64_t AllocationCounter::largest_bytes() const { return counting_allocator().largest(); }
void AllocationCounter::reset_peak() { counting_allocator().reset_peak(); }

MemoryBound::MemoryBound(int64_t extra_bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  previous_ = limit.rlim_cur;
  const auto now = status_bytes("VmData:");
  if (now < 0) return;
  limit.rlim_cur = std::min<rlim_t>(rlim_t(now) + rlim_t(std::max<int64_t>(extra_bytes, 0)), limit.rlim_max);
  TORCH_CHECK(setrlimit(RLIMIT_DATA, &limit) == 0, "cannot bound this process's memory to ", limit.rlim_cur, " bytes");
}

MemoryBound::~MemoryBound() {
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = previous_;
  setrlimit(RLIMIT_DATA, &limit);
}

int64_t resident_bytes() { return status_bytes("VmRSS:"); }
int64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

bool reset_peak_resident_bytes() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}

}  // namespace attnbench
