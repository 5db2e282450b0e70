// Linear attention by the CPU kernels: shares of the work for the threads, and which kernels run.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>

#include "attn/kernels/linear_kernels.h"

namespace attn::kernels {

// A feature map by name, with its random directions [P,D] where it takes any (checked by make_feature_map).
struct LinearMap {
  std::string name;
  std::optional<at::Tensor> projection = std::nullopt;
};

// What "auto" chooses, or the one named: "composed" (of ATen operations: null), "portable", "avx2", "avx512". Automatic are
// the kernels of the best instruction set for float32 and bfloat16 and the portable ones for float64, where the feature map
// has any; what else there is is composed. Throws c10::ValueError when the named kernels cannot be had for this map or type.
const LinearKernels* find_linear_kernels(const std::string& wanted, const std::string& feature_map, at::ScalarType dtype,
                                         c10::DeviceType device);

// As attn::_linear_attention and attn::_linear_attention_backward. The same numbers for the same number of threads.
std::tuple<at::Tensor, at::Tensor> linear_forward(const LinearKernels& kernels, const at::Tensor& q, const at::Tensor& k,
                                                  const at::Tensor& v, bool causal, const std::optional<at::Tensor>& key_lengths,
                                                  const LinearMap& map, double epsilon);
std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(const LinearKernels& kernels, const at::Tensor& gradient,
                                                               const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                               const at::Tensor& normalizer, bool causal,
                                                               const std::optional<at::Tensor>& key_lengths,
                                                               const LinearMap& map);

// Decoding. S [B,H,F,M] and Z [B,H,F] of the sums' type, contiguous, in place; for maps with scales Z is [B,H,F+1] and ends with
// the state's scale, kNoScale at first. `linear_add` takes in T tokens, `linear_step` one,
// and gives its output [B,H,1,M].
void linear_add(const LinearKernels& kernels, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s, const at::Tensor& z,
                const LinearMap& map);
at::Tensor linear_step(const LinearKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& s, const at::Tensor& z, const LinearMap& map, double epsilon);

}  // namespace attn::kernels
