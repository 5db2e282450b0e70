// The GPU as the device of a case: the first visible CUDA device. Times are measured with CUDA events on LibTorch's current
// stream, which a kernel holds until the work of a sample is queued. Memory is counted by LibTorch's caching allocator.
#include "harness/worker/device.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "harness/worker/cuda/module.h"
#include "harness/worker/cuda/nvml.h"
#include "harness/worker/cuda/queue_kernels.h"
#include "harness/worker/timing/queued_timing.h"

namespace attnbench {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr c10::DeviceIndex kDevice = 0;
constexpr size_t kAll = 0;  // the index of the allocator's statistics over small and large blocks together

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

// current_bytes() counts the bytes that tensors requested. peak_bytes() counts the bytes of their blocks, which are multiples of
// 512 bytes.
class CudaMeter final : public MemoryMeter {
 public:
  CudaMeter() {
    c10::cuda::device_synchronize();
    allocator::emptyCache();  // so that only the metered calls reserve memory
    allocator::resetPeakStats(kDevice);
    const auto stats = allocator::getDeviceStats(kDevice);
    requested_before_ = stats.requested_bytes[kAll].current;
    allocated_before_ = stats.allocated_bytes[kAll].current;
  }
  int64_t current_bytes() const override {
    return allocator::getDeviceStats(kDevice).requested_bytes[kAll].current - requested_before_;
  }
  int64_t peak_bytes() const override {
    return allocator::getDeviceStats(kDevice).allocated_bytes[kAll].peak - allocated_before_;
  }
  void reset_peak() override { allocator::resetPeakStats(kDevice); }
  void set_columns(Record& record) const override {
    record.set("peak_reserved_bytes", allocator::getDeviceStats(kDevice).reserved_bytes[kAll].peak);
  }

 private:
  int64_t requested_before_ = 0, allocated_before_ = 0;
};

// Bounds the fraction of the GPU's memory that the allocator may reserve. The allocator frees its cached blocks before it fails.
class CudaBound final : public Scope {
 public:
  CudaBound(int64_t extra_bytes, int64_t total_bytes) : previous_(allocator::getMemoryFraction(kDevice)) {
    allocator::emptyCache();
    const auto reserved = allocator::getDeviceStats(kDevice).reserved_bytes[kAll].current;
    const auto max_bytes = double(reserved + std::max<int64_t>(extra_bytes, 0));
    allocator::setMemoryFraction(std::min(previous_, max_bytes / double(total_bytes)), kDevice);
  }
  ~CudaBound() override { allocator::setMemoryFraction(previous_, kDevice); }

 private:
  double previous_;
};

class NvtxRange final : public Scope {
 public:
  explicit NvtxRange(const char* name) { nvtxRangePushA(name); }
  ~NvtxRange() override { nvtxRangePop(); }
};

// LibTorch's current stream as a queue whose work is timed.
class CudaQueue final : public WorkQueue {
 public:
  CudaQueue() {
    C10_CUDA_CHECK(cudaEventCreate(&begin_));
    C10_CUDA_CHECK(cudaEventCreate(&end_));
    C10_CUDA_CHECK(cudaHostAlloc(reinterpret_cast<void**>(&flags_), sizeof(HoldFlags), cudaHostAllocMapped));
    *flags_ = {};
    C10_CUDA_CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&flags_on_gpu_), flags_, 0));
    // The first launch of a kernel loads it, which can wait for the GPU.
    hold(0);
    release();
    drain();
  }
  // The events and the flags are not freed, since the device lives as long as the process.

  void drain() override { c10::cuda::device_synchronize(); }
  void hold(double max_s) override { C10_CUDA_CHECK(launch_hold(flags_on_gpu_, ++number_, uint64_t(max_s * 1e9), stream())); }
  void release() noexcept override { flags_->released = number_; }
  bool hold_expired() override { return flags_->expired == number_; }
  void mark_begin() override { C10_CUDA_CHECK(cudaEventRecord(begin_, stream())); }
  void mark_end() override { C10_CUDA_CHECK(cudaEventRecord(end_, stream())); }
  bool is_done() override {
    const auto state = cudaEventQuery(end_);
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();  // clears the error, which would otherwise be reported again
      return false;
    }
    C10_CUDA_CHECK(state);
    return true;
  }
  double seconds() override {
    float ms = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return double(ms) / 1e3;
  }

 private:
  static cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream(); }

  cudaEvent_t begin_{}, end_{};
  HoldFlags *flags_ = nullptr, *flags_on_gpu_ = nullptr;
  uint32_t number_ = 0;  // of the last hold
};

std::string pci_bus_id() {
  std::array<char, 32> id{};
  return cudaDeviceGetPCIBusId(id.data(), int(id.size()), kDevice) == cudaSuccess ? id.data() : "";
}

class Cuda final : public Device {
 public:
  explicit Cuda(const cudaDeviceProp& properties) : properties_(properties), nvml_(pci_bus_id()) {
    allocator::init(c10::cuda::device_count());
  }

  c10::Device torch_device() const override { return {at::kCUDA, kDevice}; }
  int64_t available_bytes() const override {
    size_t free_bytes = 0, total_bytes = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    return int64_t(free_bytes);
  }
  std::string why_unsupported(const Case& c) const override {
    if (c.allocation != "kept")
      return "allocation = " + c.allocation + " needs device = cpu, since CUDA memory is always kept between calls";
    if (c.graph && c.key_lengths != "full") return "key lengths are checked on the host, which a CUDA graph cannot record";
    return "";
  }

  bool has_own_clock() const override { return true; }
  Elapsed time(const std::function<void()>& work) override {
    queue_.drain();
    const auto host = time_on_host([&] {
      queue_.mark_begin();
      work();
      queue_.mark_end();
      queue_.drain();
    });
    return {queue_.seconds(), host.wall_s, /*includes_launches=*/true};
  }
  Stopwatch make_sample_stopwatch() override {
    const auto stopwatch = std::make_shared<QueuedStopwatch>(queue_, [this] { nvml_.watch(); });
    return [stopwatch](const std::function<void()>& work) { return stopwatch->time(work); };
  }

  // Reads a buffer that is larger than the second-level cache, which evicts everything else from it. It does not write, because
  // the timed work would then have to write the cache's content back to memory.
  std::function<void()> make_cache_flush() override {
    const auto bytes = std::max<int64_t>(2 * int64_t(properties_.l2CacheSize), int64_t{1} << 26);
    const auto buffer = at::zeros({bytes / 4}, at::TensorOptions(at::kFloat).device(torch_device()));
    const auto multiprocessors = properties_.multiProcessorCount;
    return [buffer, bytes, multiprocessors] {
      auto* const data = buffer.mutable_data_ptr<float>();
      C10_CUDA_CHECK(launch_read(data, bytes, data, multiprocessors, c10::cuda::getCurrentCUDAStream()));
    };
  }

  // Captures on another stream, because the legacy default stream cannot be captured.
  std::function<void()> capture(const std::function<void()>& work) override {
    const auto graph = std::make_shared<at::cuda::CUDAGraph>();
    c10::cuda::device_synchronize();
    {
      const c10::cuda::CUDAStreamGuard on(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, kDevice));
      graph->capture_begin();
      work();
      graph->capture_end();
    }
    c10::cuda::device_synchronize();
    return [graph] { graph->replay(); };
  }

  std::unique_ptr<MemoryMeter> make_meter() override { return std::make_unique<CudaMeter>(); }
  std::unique_ptr<Scope> bound_memory(int64_t extra_bytes) override {
    return std::make_unique<CudaBound>(extra_bytes, int64_t(properties_.totalGlobalMem));
  }
  std::unique_ptr<Scope> cache_memory(const Case&, int64_t) override { return nullptr; }

  std::unique_ptr<Scope> range(const char* name) override { return std::make_unique<NvtxRange>(name); }
  bool is_throttled() const override { return nvml_.is_throttled(); }
  void set_columns(Record& record) const override {
    record.set("gpu", properties_.name);
    record.set("gpu_capability", std::to_string(properties_.major) + "." + std::to_string(properties_.minor));
    record.set("cuda_version", version_text(CUDART_VERSION));
    nvml_.set_columns(record);
  }

 private:
  cudaDeviceProp properties_;
  Nvml nvml_;
  CudaQueue queue_;
};

}  // namespace
}  // namespace attnbench

attnbench::Device* attnbench_gpu_device(const char** why) {
  static const auto* const error = [] {
    int count = 0;
    const auto found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess) return cudaGetErrorString(found);
    return count == 0 ? "no CUDA device is visible" : static_cast<const char*>(nullptr);
  }();
  if (error) {
    *why = error;
    return nullptr;
  }
  cudaDeviceProp properties{};
  if (const auto failed = cudaGetDeviceProperties(&properties, 0); failed != cudaSuccess) {
    *why = cudaGetErrorString(failed);
    return nullptr;
  }
  // Never destroyed, since an error may have left the CUDA context unusable.
  static auto* const device = new attnbench::Cuda(properties);
  return device;
}
