// The CPU takes the part of the GPU, and memory that nobody has written is NaN.
#include <ATen/Context.h>

#include "attn/cuda/cuda_device.h"

namespace {

const bool ready = [] {
  attn::kernels::emulate_cuda_on_cpu();
  at::globalContext().setDeterministicAlgorithms(/*b=*/true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(true);
  return true;
}();

}  // namespace
