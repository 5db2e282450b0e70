// What the host side of the CUDA operators needs of LibTorch's CUDA: the device type, the current GPU, its stream and its
// properties.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace attn::cuda {

// The properties of a GPU that kernels are chosen by.
struct GpuProperties {
  int64_t multiprocessors;
  size_t shared_bytes_per_block;  // the most that a kernel may ask for (cudaDevAttrMaxSharedMemoryPerBlockOptin)
  int64_t l2_bytes;               // the size of the L2 cache
};

}  // namespace attn::cuda

#ifdef ATTN_CUDA_EMULATION
#include ATTN_CUDA_EMULATION

namespace attn::cuda {

constexpr c10::DeviceType kDeviceType = c10::DeviceType::CPU;

class GpuGuard {
 public:
  explicit GpuGuard(const at::Tensor&) {}
};
inline cudaStream_t current_stream() { return nullptr; }
inline GpuProperties gpu_properties(c10::DeviceIndex = -1) {
  return {emulation::multiprocessors(), emulation::max_shared_bytes(), emulation::l2_bytes()};
}

}  // namespace attn::cuda

#else
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

namespace attn::cuda {

// The type of device whose tensors the kernels read and write.
constexpr c10::DeviceType kDeviceType = c10::DeviceType::CUDA;

// Makes the GPU that holds the tensor the current one for the lifetime of this object.
class GpuGuard {
 public:
  explicit GpuGuard(const at::Tensor& x) : guard_(x.device()) {}

 private:
  c10::cuda::CUDAGuard guard_;
};
inline cudaStream_t current_stream() { return at::cuda::getCurrentCUDAStream(); }
// The properties of the GPU with this index, or of the current one if it is −1. LibTorch asks each GPU once. Where there is no
// GPU, these are the properties of an H100, because memory is also predicted there.
inline GpuProperties gpu_properties(c10::DeviceIndex index = -1) {
  if (c10::cuda::device_count() == 0) return {132, 227 << 10, 50 << 20};
  const auto* properties = at::cuda::getDeviceProperties(index < 0 ? c10::cuda::current_device() : index);
  return {properties->multiProcessorCount, properties->sharedMemPerBlockOptin, properties->l2CacheSize};
}

}  // namespace attn::cuda
#endif
