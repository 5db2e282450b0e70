// What the host side of the CUDA operators needs of LibTorch's CUDA: the device type, the current GPU, its stream, its number
// of multiprocessors and the size of its L2 cache.
#pragma once

#include <ATen/core/Tensor.h>

#ifdef ATTN_CUDA_EMULATION
#include ATTN_CUDA_EMULATION

namespace attn::cuda {

constexpr c10::DeviceType kDeviceType = c10::DeviceType::CPU;

class GpuGuard {
 public:
  explicit GpuGuard(const at::Tensor&) {}
};
inline cudaStream_t current_stream() { return nullptr; }
inline int64_t multiprocessors() { return emulation::multiprocessors(); }
inline int64_t l2_bytes() { return emulation::l2_bytes(); }

}  // namespace attn::cuda

#else
#include <ATen/cuda/CUDAContext.h>
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
inline int64_t multiprocessors() { return at::cuda::getCurrentDeviceProperties()->multiProcessorCount; }
inline int64_t l2_bytes() { return at::cuda::getCurrentDeviceProperties()->l2CacheSize; }

}  // namespace attn::cuda
#endif
