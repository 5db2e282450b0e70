// The functions that the worker calls in the GPU module libattnbench-gpu.so.
#pragma once

#include <cstdint>

namespace attnbench {

class Device;

struct GpuCeilings {
  char name[256] = {};
  int driver_version = 0;   // the newest CUDA version that the driver supports, 13000 for 13.0
  int runtime_version = 0;  // the CUDA version of the build, in the same form
  int64_t memory_bytes = 0;
  int64_t array_bytes = 0;         // size of the array whose copy was timed
  double copy_gb_s = 0;            // bytes read plus bytes written
  double fma_float32_gflop_s = 0;  // outside the tensor cores
  // Products of large square matrices by cuBLAS. float32 is measured with TF32, which other kernels may use as well.
  double matmul_float64_gflop_s = 0, matmul_float32_gflop_s = 0, matmul_float16_gflop_s = 0, matmul_bfloat16_gflop_s = 0;
};

}  // namespace attnbench

extern "C" {
// Device 0, which lives as long as the process. If there is none, returns null and sets `why` to the reason.
attnbench::Device* attnbench_gpu_device(const char** why);
// Measures device 0. Returns null, or an error message that lives as long as the process.
const char* attnbench_gpu_ceilings(attnbench::GpuCeilings* ceilings);
}
