#include "harness/worker/device.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "harness/schema/machine.h"
#include "harness/worker/cuda/module.h"
#include "harness/worker/kept_memory.h"
#include "harness/worker/memory.h"

namespace attnbench {
namespace {

class CpuMeter final : public MemoryMeter {
 public:
  int64_t current_bytes() const override { return counter_.current_bytes(); }
  int64_t peak_bytes() const override { return counter_.peak_bytes(); }
  void forget_peak() override { counter_.forget_peak(); }
  void set_columns(Record& record) const override { record.set("largest_allocation_bytes", counter_.largest_bytes()); }

 private:
  AllocationCounter counter_;
};

// For as long as the scope.
template <class Held>
class Holding final : public Scope {
 public:
  explicit Holding(int64_t bytes) : held_(bytes) {}

 private:
  Held held_;
};

// Evicts everything by writing more than the last-level cache holds.
class CacheFlush {
 public:
  void operator()() { buffer_.add_(1); }

 private:
  static int64_t bytes() {
    const auto last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return std::clamp<int64_t>(last_level > 0 ? 2 * last_level : 0, int64_t{1} << 26, int64_t{1} << 30);
  }
  at::Tensor buffer_ = at::zeros({bytes() / 4}, at::kFloat);
};

class Cpu final : public Device {
 public:
  c10::Device torch_device() const override { return at::kCPU; }
  int64_t available_bytes() const override { return available_memory_bytes(); }
  std::string why_unsupported(const Case& c) const override { return c.graph ? "CUDA graphs need device = cuda" : ""; }

  bool has_own_clock() const override { return false; }
  Elapsed time(const std::function<void()>& work) override { return time_on_host(work); }
  std::function<void()> make_cache_flush() override { return CacheFlush(); }
  std::function<void()> capture(const std::function<void()>&) override { TORCH_CHECK(false, "the CPU has no graphs"); }

  std::unique_ptr<MemoryMeter> make_meter() override { return std::make_unique<CpuMeter>(); }
  std::unique_ptr<Scope> bound_memory(int64_t extra_bytes) override {
    return std::make_unique<Holding<MemoryBound>>(extra_bytes);
  }
  std::unique_ptr<Scope> keep_memory(const Case& c) override {
    return std::make_unique<Holding<KeptMemory>>(c.allocation == "kept" ? c.memory_limit_bytes / 4 : 0);
  }

  std::unique_ptr<Scope> range(const char*) override { return nullptr; }
  void watch() override {}
  void set_columns(Record&) const override {}
};

struct GpuModule {
  decltype(&attnbench_gpu_device) device = nullptr;
  decltype(&attnbench_gpu_ceilings) ceilings = nullptr;
  std::string why_none;
};

GpuModule load_gpu_module() {
  GpuModule module;
  const char* const chosen = std::getenv("ATTNBENCH_GPU_MODULE");
  const auto path = chosen ? std::filesystem::path(chosen)
                           : std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libattnbench-gpu.so";
  if (!std::filesystem::exists(path)) {
    module.why_none = chosen ? "ATTNBENCH_GPU_MODULE = " + path.string() + " does not exist" : "this build has no CUDA";
    return module;
  }
  // The module takes half a second to load; without a driver it would be of no use.
  if (!chosen && !dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    module.why_none = "no NVIDIA driver here: " + std::string(dlerror());
    return module;
  }
  // Kernels and operators make themselves known to those who are already loaded.
  auto* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    module.why_none = dlerror();
    return module;
  }
  module.device = reinterpret_cast<decltype(module.device)>(dlsym(library, "attnbench_gpu_device"));
  module.ceilings = reinterpret_cast<decltype(module.ceilings)>(dlsym(library, "attnbench_gpu_ceilings"));
  if (!module.device || !module.ceilings) module.why_none = path.string() + " is not a GPU module of attnbench";
  return module;
}

const GpuModule& gpu_module() {
  static const auto module = load_gpu_module();
  return module;
}

}  // namespace

static bool gave_gpu = false;
bool gpu_in_use() { return gave_gpu; }

FoundDevice find_device(const std::string& name) {
  static Cpu cpu;
  if (name == "cpu") return {&cpu, ""};
  TORCH_CHECK_VALUE(name == "cuda", "device = '", name, "', expected cpu or cuda");
  const auto& module = gpu_module();
  if (!module.why_none.empty()) return {nullptr, module.why_none};
  const char* why = "";
  auto* const device = module.device(&why);
  gave_gpu = gave_gpu || device;
  return {device, device ? "" : why};
}

Json gpu_ceilings() {
  const auto& module = gpu_module();
  if (!module.why_none.empty()) return {{"unavailable", module.why_none}};
  GpuCeilings c;
  if (const char* const problem = module.ceilings(&c)) return {{"unavailable", problem}};
  return {{"name", c.name},
          {"driver_version", c.driver_version},
          {"runtime_version", c.runtime_version},
          {"memory_bytes", c.memory_bytes},
          {"array_bytes", c.array_bytes},
          {"copy_gb_s", c.copy_gb_s},
          {"fma_float32_gflop_s", c.fma_float32_gflop_s},
          {"matmul_float64_gflop_s", c.matmul_float64_gflop_s},
          {"matmul_float32_gflop_s", c.matmul_float32_gflop_s},
          {"matmul_float16_gflop_s", c.matmul_float16_gflop_s},
          {"matmul_bfloat16_gflop_s", c.matmul_bfloat16_gflop_s}};
}

}  // namespace attnbench
