// Loads the module of the GPU when a case asks for it, and sets the columns of memory.
#include "harness/worker/device.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "harness/worker/cpu/device.h"
#include "harness/worker/cuda/module.h"

namespace attnbench {
namespace {

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
    module.why_none = chosen ? "ATTNBENCH_GPU_MODULE = " + path.string() + " does not exist"
                             : "this build has no CUDA kernels; `make cuda` builds them";
    return module;
  }
  // Loading the module takes half a second, which would be wasted on a machine without a driver.
  if (!chosen && !dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    module.why_none = "this machine has no NVIDIA driver: " + std::string(dlerror());
    return module;
  }
  // The module's CUDA kernels and operators register themselves in libattn and LibTorch, which are already loaded.
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

FoundDevice find_device(const std::string& name) {
  if (name == "cpu") return {&cpu_device(), ""};
  TORCH_CHECK_VALUE(name == "cuda", "device = '", name, "', expected cpu or cuda");
  const auto& module = gpu_module();
  if (!module.why_none.empty()) return {nullptr, module.why_none};
  const char* why = "";
  auto* const device = module.device(&why);
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

void set_memory_columns(Record& record, const MemoryMeter& meter, int64_t input_bytes, int64_t extra_bytes, int64_t batch) {
  record.set("input_bytes", input_bytes);
  record.set("peak_extra_bytes", extra_bytes);
  record.set("peak_allocated_bytes", input_bytes + extra_bytes);
  record.set("peak_extra_bytes_per_sample", double(extra_bytes) / double(std::max<int64_t>(1, batch)));
  meter.set_columns(record);
}

}  // namespace attnbench
