// LSH attention by the CPU kernels: hash, sort, shares of the work for the threads, and which kernels run.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "attn/kernels/lsh_kernels.h"

namespace attn::kernels {

// What "auto" chooses, or the one named: "composed" (of ATen operations: null), "portable", "avx2", "avx512". Automatic are
// the kernels of the best instruction set for float32 and bfloat16 and the portable ones for float64; other types and devices
// are composed. Throws c10::ValueError when the named kernels cannot be had for this type or device.
const LshKernels* find_lsh_kernels(const std::string& wanted, at::ScalarType dtype, c10::DeviceType device);

// As attn::_lsh_attention and attn::_lsh_attention_backward. The same numbers for the same number of threads.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lsh_forward(const LshKernels& kernels, const at::Tensor& qk, const at::Tensor& v,
                                                           const at::Tensor& rotations, int64_t chunk, bool causal,
                                                           const std::optional<at::Tensor>& key_lengths, bool trax,
                                                           at::OptionalIntArrayRef bucket_factors);
std::tuple<at::Tensor, at::Tensor> lsh_backward(const LshKernels& kernels, const at::Tensor& gradient, const at::Tensor& qk,
                                                const at::Tensor& v, const at::Tensor& output,
                                                const std::optional<at::Tensor>& key_lengths, const at::Tensor& log_sum_exp,
                                                const at::Tensor& order, const at::Tensor& shares, int64_t chunk, bool causal,
                                                bool trax);

}  // namespace attn::kernels
