#include "attn/cuda/cuda_device.h"

namespace attn::kernels {
namespace {
c10::DeviceType device = c10::DeviceType::CUDA;
}

c10::DeviceType cuda_device() { return device; }
void emulate_cuda_on_cpu() { device = c10::DeviceType::CPU; }

}  // namespace attn::kernels
