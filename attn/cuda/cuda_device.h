// Where the CUDA kernels run: on CUDA devices, or on the CPU in tests that emulate them there.
#pragma once

#include <c10/core/Device.h>

namespace attn::kernels {

c10::DeviceType cuda_device();
void emulate_cuda_on_cpu();

}  // namespace attn::kernels
