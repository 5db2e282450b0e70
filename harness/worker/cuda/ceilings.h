// The ceilings of a GPU that kernels in ceilings.cu measure. That file does not include LibTorch.
#pragma once

#include "harness/worker/cuda/module.h"

namespace attnbench {

// Sets the name, the versions, the sizes, copy_gb_s and fma_float32_gflop_s for device 0. Returns null, or an error message that
// lives as long as the process.
const char* measure_copy_and_fma(GpuCeilings& ceilings);

}  // namespace attnbench
