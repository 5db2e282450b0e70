#include "harness/worker/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>

namespace attnbench {
namespace {

// Blocks begin with a header that holds their size: LibTorch also frees blocks by their address alone (raw_deallocate).
constexpr size_t kHeader = c10::gAlignment;

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = at::Device(at::kCPU);
    if (bytes == 0) return {nullptr, device};
    auto* const block = static_cast<char*>(c10::alloc_cpu(bytes + kHeader));
    std::memcpy(block, &bytes, sizeof bytes);
    add(int64_t(bytes));
    return {block + kHeader, block + kHeader, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }

  void reset() { current_ = peak_ = largest_ = 0; }
  int64_t current() const { return current_; }
  int64_t peak() const { return peak_; }
  int64_t largest() const { return largest_; }

 private:
  static void release(void* data);

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

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  auto* const block = static_cast<char*>(data) - kHeader;
  size_t bytes = 0;
  std::memcpy(&bytes, block, sizeof bytes);
  counting_allocator().current_ -= int64_t(bytes);
  c10::free_cpu(block);
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
