// Implements Device for the CPU: its memory, its caches, and the clock of the host.
#include "harness/worker/cpu/device.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "harness/machine/machine.h"
#include "harness/worker/cpu/block_cache.h"
#include "harness/worker/cpu/memory.h"

namespace attnbench {
namespace {

class CpuMeter final : public MemoryMeter {
 public:
  int64_t current_bytes() const override { return counter_.current_bytes(); }
  int64_t peak_bytes() const override { return counter_.peak_bytes(); }
  void reset_peak() override { counter_.reset_peak(); }
  void set_columns(Record& record) const override { record.set("largest_allocation_bytes", counter_.largest_bytes()); }

 private:
  AllocationCounter counter_;
};

// A MemoryBound or a BlockCache as a Scope.
template <class Held>
class Holding final : public Scope {
 public:
  explicit Holding(int64_t bytes) : held_(bytes) {}

 private:
  Held held_;
};

// Evicts everything else from the CPU's caches by writing to a buffer that is larger than the last level.
class CacheFlush {
 public:
  void operator()() { buffer_.add_(1); }

 private:
  at::Tensor buffer_ = at::zeros({bytes_beyond_caches(int64_t{1} << 26, int64_t{1} << 30) / 4}, at::kFloat);
};

class Cpu final : public Device {
 public:
  c10::Device torch_device() const override { return at::kCPU; }
  int64_t available_bytes() const override { return available_memory_bytes(); }
  std::string why_unsupported(const Case& c) const override {
    if (c.graph) return "CUDA graphs need device = cuda";
    const auto processors = processors_for_this_process();
    if (c.ranks * c.threads <= processors.count) return "";
    const auto threads = std::to_string(c.threads) + " threads";
    const auto needed = c.ranks == 1 ? threads + " need as many processors"
                                     : std::to_string(c.ranks) + " ranks of " + threads + " need " +
                                           std::to_string(c.ranks * c.threads) + " processors";
    return needed + ", but this process has " + std::to_string(processors.count) + " (bound: " + processors.bound + ")";
  }

  bool has_own_clock() const override { return false; }
  Elapsed time(const std::function<void()>& work) override { return time_on_host(work); }
  Stopwatch make_sample_stopwatch() override { return time_on_host; }
  std::function<void()> make_cache_flush() override { return CacheFlush(); }
  std::function<void()> capture(const std::function<void()>&) override { TORCH_CHECK(false, "the CPU has no CUDA graphs"); }

  std::unique_ptr<MemoryMeter> make_meter() override { return std::make_unique<CpuMeter>(); }
  std::unique_ptr<Scope> bound_memory(int64_t extra_bytes) override {
    return std::make_unique<Holding<MemoryBound>>(extra_bytes);
  }
  std::unique_ptr<Scope> cache_memory(const Case& c, int64_t input_bytes) override {
    return std::make_unique<Holding<BlockCache>>(c.allocation == "kept" ? std::max<int64_t>(0, c.memory_limit_bytes - input_bytes)
                                                                        : 0);
  }

  std::unique_ptr<Scope> range(const char*) override { return nullptr; }
  void set_columns(Record&) const override {}
};

}  // namespace

int64_t bytes_beyond_caches(int64_t min, int64_t max) {
  // At most a small share of the memory is used, because a control group kills a process that exceeds its limit.
  max = std::max(min / 8, std::min(max, available_memory_bytes() / 8));
  min = std::min(min, max);
  return std::clamp(2 * last_level_cache_bytes(available_processor_numbers()), min, max);
}

Device& cpu_device() {
  static Cpu cpu;
  return cpu;
}

}  // namespace attnbench
