// sparse_attention(), the operator attn::sparse_attention as a function of C++.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>

namespace attn {

// Softmax attention over the keys that a pattern leaves visible, as attn/sparse/implementation.h defines it: the output and the
// log-sum-exp, both differentiable in q, k, v and the sinks. `pattern` is a text of attn/pattern.h; the scale is 1/√D by default.
// Throws c10::ValueError for arguments that do not fit together, which the message names.
std::tuple<at::Tensor, at::Tensor> sparse_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                                                    const std::string& pattern,
                                                    const std::optional<at::Tensor>& key_lengths = std::nullopt,
                                                    const std::optional<at::Tensor>& cu_seqlens = std::nullopt,
                                                    const std::optional<at::Tensor>& sinks = std::nullopt,
                                                    std::optional<double> scale = std::nullopt,
                                                    const std::string& implementation = "auto");

}  // namespace attn
