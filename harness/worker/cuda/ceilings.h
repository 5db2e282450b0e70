// The measurements of a GPU's ceilings that are CUDA kernels of their own, in ceilings.cu, which includes no LibTorch.
#pragma once

#include "harness/worker/cuda/module.h"

namespace attnbench {

// Sets the GPU's name, versions and sizes, copy_gb_s and fma_float32_gflop_s. Returns null, or what went wrong.
const char* measure_copy_and_fma(GpuCeilings& ceilings);

}  // namespace attnbench
