// What the GPU module libattnbench-gpu.so offers the worker.
#pragma once

#include <cstdint>

namespace attnbench {

struct GpuCeilings {
  char name[256] = {};
  int driver_version = 0;   // as 13000 for 13.0: the newest CUDA that the driver serves
  int runtime_version = 0;  // likewise, of the CUDA that this was built with
  int64_t memory_bytes = 0;
  double copy_gb_s = 0;            // bytes read plus bytes written
  double fma_float32_gflop_s = 0;  // outside the tensor cores
};

}  // namespace attnbench

// Measures device 0. Null when it went well, otherwise what went wrong.
extern "C" const char* attnbench_gpu_ceilings(attnbench::GpuCeilings* ceilings);
