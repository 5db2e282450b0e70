#include "attn/implementations.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

namespace attn {
namespace {

std::set<c10::DeviceType>& gpu_devices() {
  static std::set<c10::DeviceType> devices{c10::DeviceType::CUDA};
  return devices;
}

}  // namespace

std::optional<ElementType> element_type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return ElementType::float32;
    case at::kDouble: return ElementType::float64;
    case at::kBFloat16: return ElementType::bfloat16;
    case at::kHalf: return ElementType::float16;
    default: return std::nullopt;
  }
}

bool records_gradients(at::TensorList tensors) {
  return at::GradMode::is_enabled() &&
         std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& x) { return x.requires_grad(); });
}

bool runs_gpu_kernels(c10::DeviceType device) { return gpu_devices().contains(device); }

void detail::set_runs_gpu_kernels(c10::DeviceType device) { gpu_devices().insert(device); }

}  // namespace attn
