// The functions that the worker calls in the GPU module libattnbench-gpu.so.
#pragma once

#include <cstdint>

namespace attnbench {

class Device;

struct GpuCeilings {
  char name[256] = {};
  int driver_version = 0;   // the newest CUDA version that the driver supports, 13000 for 13.0
  int runtime_version = 0;  // the CUDA version of the build, likewise
  int64_t memory_bytes = 0;
  int64_t array_bytes = 0;         // size of the array that the bandwidth was measured on
  double copy_gb_s = 0;            // bytes read plus bytes written
  double fma_float32_gflop_s = 0;  // outside the tensor cores
  // cuBLAS's product of large square matrices; float32 as TF32, which kernels may use as well
  double matmul_float64_gflop_s = 0, matmul_float32_gflop_s = 0, matmul_float16_gflop_s = 0, matmul_bfloat16_gflop_s = 0;
};

}  // namespace attnbench

extern "C" {
// Device 0, which lives as long as the process. Null where there is none; `why` then says why.
attnbench::Device* attnbench_gpu_device(const char** why);
// Measures device 0. Returns null, or what went wrong.
const char* attnbench_gpu_ceilings(attnbench::GpuCeilings* ceilings);
}
