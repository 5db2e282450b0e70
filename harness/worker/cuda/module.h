// What the GPU module libattnbench-gpu.so offers the worker.
#pragma once

#include <cstdint>

namespace attnbench {

class Device;

struct GpuCeilings {
  char name[256] = {};
  int driver_version = 0;   // as 13000 for 13.0: the newest CUDA that the driver serves
  int runtime_version = 0;  // likewise, of the CUDA that this was built with
  int64_t memory_bytes = 0;
  int64_t array_bytes = 0;         // that the bandwidth was measured on
  double copy_gb_s = 0;            // bytes read plus bytes written
  double fma_float32_gflop_s = 0;  // outside the tensor cores
  // The library's product of large square matrices; float32 as TF32, which kernels may use too.
  double matmul_float64_gflop_s = 0, matmul_float32_gflop_s = 0, matmul_float16_gflop_s = 0, matmul_bfloat16_gflop_s = 0;
};

}  // namespace attnbench

extern "C" {
// Device 0, for as long as the process lives; null where there is none, `why` then saying why.
attnbench::Device* attnbench_gpu_device(const char** why);
// Measures device 0. Null when it went well, otherwise what went wrong.
const char* attnbench_gpu_ceilings(attnbench::GpuCeilings* ceilings);
}
