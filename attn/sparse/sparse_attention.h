// sparse_attention(), the operator attn::sparse_attention as a function of C++.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>

namespace attn {

// SparseArguments in attn/sparse/implementation.h documents these; `pattern` is a text of attn/pattern.h.
struct SparseAttentionOptions {
  bool causal = false;
  std::string pattern = "all";
  std::optional<at::Tensor> key_lengths = {}, cu_seqlens = {}, sinks = {}, chosen_blocks = {};
  int64_t block = 64;                // the number of keys of a chosen block
  std::optional<double> scale = {};  // D^-½ by default
  std::string implementation = "auto";
};

// Softmax attention over the keys that a pattern leaves visible, or over blocks of keys that are chosen for each query, as
// attn/sparse/implementation.h defines it: the output and the log-sum-exp (SparseResults), both differentiable once by q, k, v
// and the sinks. Throws c10::ValueError, which names the argument, for arguments that are invalid or do not fit together.
std::tuple<at::Tensor, at::Tensor> sparse_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                    const SparseAttentionOptions& options = {});

}  // namespace attn
