// The ceilings of a GPU that kernels in ceilings.cu measure. That file does not include LibTorch.
#pragma once

#include <functional>

#include "harness/worker/cuda/module.h"

namespace attnbench {

// Returns the seconds that the launched work takes on the GPU.
using TimeLaunch = std::function<double(const std::function<void()>& launch)>;

// Sets the name, the versions, the sizes, copy_gb_s and fma_float32_gflop_s for device 0. The work is launched in the legacy
// default stream and timed with `time`. Returns null, or an error message that lives as long as the process.
const char* measure_copy_and_fma(GpuCeilings& ceilings, const TimeLaunch& time);

}  // namespace attnbench
