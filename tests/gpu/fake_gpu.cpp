// A GPU module for tests on machines without a GPU. Its tensors lie in main memory, and its clock shows half of the host's time.
// Whatever its records are named, their column `gpu` begins with "a fake GPU", so that nobody takes them for those of a GPU.
// The environment variable ATTNBENCH_FAKE_GPU chooses a fault: absent, poisoned (every timed call throws an error, and the
// process aborts when it exits), out-of-memory, slow-ceilings, throttled, or synchronising (every call waits for the GPU itself).
// name=NAME adds to its name.
#include <ATen/ATen.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "harness/worker/cpu/memory.h"
#include "harness/worker/cuda/module.h"
#include "harness/worker/device.h"
#include "harness/worker/timing/queued_timing.h"

namespace attnbench {
namespace {

std::string fault() {
  const char* const text = std::getenv("ATTNBENCH_FAKE_GPU");
  return text ? text : "";
}
std::string name() { return fault().starts_with("name=") ? "a fake GPU, " + fault().substr(5) : "a fake GPU"; }

class FakeMeter final : public MemoryMeter {
 public:
  int64_t current_bytes() const override { return counter_.current_bytes(); }
  int64_t peak_bytes() const override { return counter_.peak_bytes(); }
  void reset_peak() override { counter_.reset_peak(); }
  void set_columns(Record& record) const override { record.set("peak_reserved_bytes", int64_t{3} << 20); }

 private:
  AllocationCounter counter_;
};

// Work runs when it is queued. The clock shows half of the host's time.
class FakeQueue final : public WorkQueue {
 public:
  void drain() override {}
  void hold(double) override {}
  void release() noexcept override {}
  bool hold_expired() override { return fault() == "synchronising"; }
  void mark_begin() override { begin_ = std::chrono::steady_clock::now(); }
  void mark_end() override { end_ = std::chrono::steady_clock::now(); }
  bool is_done() override { return true; }
  double seconds() override { return std::chrono::duration<double>(end_ - begin_).count() / 2; }

 private:
  std::chrono::steady_clock::time_point begin_, end_;
};

class FakeGpu final : public Device {
 public:
  c10::Device torch_device() const override { return at::kCPU; }
  int64_t available_bytes() const override { return int64_t{11} << 30; }
  std::string why_unsupported(const Case& c) const override { return c.allocation == "kept" ? "" : "memory is always kept"; }

  bool has_own_clock() const override { return true; }
  Elapsed time(const std::function<void()>& work) override {
    if (fault() == "poisoned") {
      std::atexit([] { std::abort(); });
      TORCH_CHECK(false, "CUDA error: an illegal memory access was encountered");
    }
    TORCH_CHECK_WITH(OutOfMemoryError, fault() != "out-of-memory", "CUDA out of memory. Tried to allocate 2.00 GiB");
    const auto elapsed = time_on_host(work);
    return {elapsed.wall_s / 2, elapsed.wall_s};
  }
  Stopwatch make_sample_stopwatch() override {
    const auto stopwatch = std::make_shared<QueuedStopwatch>(queue_, [this] { ++readings_; });
    return [stopwatch](const std::function<void()>& work) { return stopwatch->time(work); };
  }
  std::function<void()> make_cache_flush() override {
    return [] {};
  }
  // There is no graph to record, so the work runs once here, and a replay only waits for 20 microseconds.
  std::function<void()> capture(const std::function<void()>& work) override {
    work();
    return [] {
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(20)) {
      }
    };
  }

  std::unique_ptr<MemoryMeter> make_meter() override { return std::make_unique<FakeMeter>(); }
  std::unique_ptr<Scope> bound_memory(int64_t) override { return nullptr; }
  std::unique_ptr<Scope> cache_memory(const Case&, int64_t) override { return nullptr; }
  std::unique_ptr<Scope> range(const char*) override { return nullptr; }
  bool is_throttled() const override { return readings_ > 0 && fault() == "throttled"; }
  void set_columns(Record& record) const override {
    record.set("gpu", name());
    record.set("gpu_driver", "0.0");
    if (readings_ == 0) return;
    record.set("gpu_clock_mhz", 1000.0);
    record.set("gpu_throttle_reasons", is_throttled() ? "sw_power_cap" : "none");
  }

 private:
  FakeQueue queue_;
  int readings_ = 0;
};

}  // namespace
}  // namespace attnbench

attnbench::Device* attnbench_gpu_device(const char** why) {
  static attnbench::FakeGpu device;
  if (attnbench::fault() != "absent") return &device;
  *why = "no CUDA device is visible";
  return nullptr;
}

const char* attnbench_gpu_ceilings(attnbench::GpuCeilings* ceilings) {
  if (attnbench::fault() == "absent") return "no CUDA device is visible";
  const double speed = attnbench::fault() == "slow-ceilings" ? 0.05 : 1e6;
  std::strncpy(ceilings->name, attnbench::name().c_str(), sizeof ceilings->name - 1);
  ceilings->memory_bytes = int64_t{12} << 30;
  ceilings->array_bytes = 1;
  ceilings->copy_gb_s = ceilings->fma_float32_gflop_s = ceilings->matmul_float32_gflop_s = speed;
  ceilings->matmul_float64_gflop_s = ceilings->matmul_float16_gflop_s = ceilings->matmul_bfloat16_gflop_s = speed;
  return nullptr;
}
