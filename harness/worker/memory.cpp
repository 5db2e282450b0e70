#include "harness/worker/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>

namespace attnbench {
namespace {

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto inner = c10::GetDefaultCPUAllocator()->allocate(bytes);
    auto* const data = inner.get();
    const auto device = inner.device();
    add(int64_t(bytes));
    auto* const block = new Block{this, int64_t(bytes), std::move(inner)};
    return {data, block, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // a block knows its size only through its context
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }

  void reset() { current_ = peak_ = largest_ = 0; }
  int64_t current() const { return current_; }
  int64_t peak() const { return peak_; }
  int64_t largest() const { return largest_; }

 private:
  struct Block {
    CountingAllocator* owner;
    int64_t bytes;
    c10::DataPtr inner;
  };

  static void release(void* context) {
    auto* const block = static_cast<Block*>(context);
    block->owner->current_ -= block->bytes;
    delete block;
  }

  static void raise(std::atomic<int64_t>& most, int64_t value) {
    auto seen = most.load();
    while (seen < value && !most.compare_exchange_weak(seen, value)) {
    }
  }

  void add(int64_t bytes) {
    raise(peak_, current_ += bytes);
    raise(largest_, bytes);
  }

  std::atomic<int64_t> current_{0}, peak_{0}, largest_{0};
};

// Never destroyed: a tensor may outlive everything else.
CountingAllocator& counting_allocator() {
  static auto* const allocator = new CountingAllocator;
  return *allocator;
}

// A line of /proc/self/status in bytes.
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
