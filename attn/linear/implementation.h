// Linear attention by kernels: which run, and on the CPU the shares of the work for the threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>

#include "attn/linear/cpu/kernels.h"

namespace attn::kernels {

// A feature map by name, with its random directions [P,D] where it takes any (checked by make_feature_map).
struct LinearMap {
  std::string name;
  std::optional<at::Tensor> projection = std::nullopt;
};

// What computes linear attention without composing it of ATen operations: attn::_linear_attention, its backward, and decoding.
class LinearImplementation {
 public:
  using Tensor = at::Tensor;
  virtual ~LinearImplementation() = default;

  // As records have it: "avx512".
  virtual std::string name() const = 0;
  virtual std::tuple<Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                             const std::optional<Tensor>& key_lengths, const LinearMap& map,
                                             double epsilon) const = 0;
  virtual std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                                                      const Tensor& normalizer, bool causal,
                                                      const std::optional<Tensor>& key_lengths, const LinearMap& map) const = 0;
  // Decoding: T tokens into the state, or one with its output [B,H,1,M]. S [B,H,F,M] and Z [B,H,F] of the sums' type, contiguous,
  // in place; for maps with scales Z is [B,H,F+1] and ends with the state's scale, kNoScale at first.
  virtual void add(const Tensor& k, const Tensor& v, const Tensor& s, const Tensor& z, const LinearMap& map) const = 0;
  virtual Tensor step(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s, const Tensor& z, const LinearMap& map,
                      double epsilon) const = 0;
};

// What is asked of an implementation.
struct LinearRequest {
  std::string wanted;  // "auto", "composed" (null), or a name
  std::string feature_map;
  at::ScalarType dtype;
  c10::DeviceType device;
  int64_t head_dim, value_dim;
};

// The one that was asked for, or null: "composed", and "auto" where there is none. On the CPU: see find_linear_kernels(); on CUDA
// "cuda", "cuda-tf32" and "cuda-plain": see attn/linear/cuda/implementation.cpp. Throws c10::ValueError when it cannot be had.
const LinearImplementation* find_linear(const LinearRequest& request);

// Those of libattn-cuda.so, which makes them known when it is loaded; null for "auto" where there is none.
using FindLinear = const LinearImplementation* (*)(const LinearRequest& request);
void set_cuda_linear(FindLinear find);

// What "auto" chooses, or the one named: "composed" (of ATen operations: null), "portable", "avx2", "avx512". Automatic are
// the kernels of the best instruction set for float32 and bfloat16 and the portable ones for float64, where the feature map
// has any; what else there is is composed. Throws c10::ValueError when the named kernels cannot be had for this map or type.
const LinearKernels* find_linear_kernels(const std::string& wanted, const std::string& feature_map, at::ScalarType dtype,
                                         c10::DeviceType device);

}  // namespace attn::kernels
