// LSH attention by kernels: which run, and on the CPU hash, sort and shares of the work for the threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "attn/lsh/cpu/kernels.h"

namespace attn::kernels {

// What computes LSH attention without composing it of ATen operations: attn::_lsh_attention and its backward.
class LshImplementation {
 public:
  using Tensor = at::Tensor;
  virtual ~LshImplementation() = default;

  // As records have it: "avx512".
  virtual std::string name() const = 0;
  virtual std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk,
                                                     bool causal, const std::optional<Tensor>& key_lengths, bool trax,
                                                     at::OptionalIntArrayRef bucket_factors) const = 0;
  // shares [B·H,R,N], float64: what of the output comes from each round.
  virtual std::tuple<Tensor, Tensor> backward(const Tensor& gradient, const Tensor& qk, const Tensor& v, const Tensor& output,
                                              const std::optional<Tensor>& key_lengths, const Tensor& log_sum_exp,
                                              const Tensor& order, const Tensor& shares, int64_t chunk, bool causal,
                                              bool trax) const = 0;
};

// What is asked of an implementation.
struct LshRequest {
  std::string wanted;  // "auto", "composed" (null), or a name
  at::ScalarType dtype;
  c10::DeviceType device;
  int64_t head_dim, value_dim;
};

// The one that was asked for, or null: "composed", and "auto" where there is none. On the CPU: see find_lsh_kernels(); on CUDA
// "cuda": see attn/lsh/cuda/implementation.cpp. Throws c10::ValueError when it cannot be had.
const LshImplementation* find_lsh(const LshRequest& request);

// Those of libattn-cuda.so, which makes them known when it is loaded; null for "auto" where there is none.
using FindLsh = const LshImplementation* (*)(const LshRequest& request);
void set_cuda_lsh(FindLsh find);

// What "auto" chooses, or the one named: "composed" (of ATen operations: null), "portable", "avx2", "avx512". Automatic are
// the kernels of the best instruction set for float32 and bfloat16 and the portable ones for float64; other types and devices
// are composed. Throws c10::ValueError when the named kernels cannot be had for this type or device.
const LshKernels* find_lsh_kernels(const std::string& wanted, at::ScalarType dtype, c10::DeviceType device);

}  // namespace attn::kernels
