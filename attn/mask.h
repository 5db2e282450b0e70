// Which keys a query may see: a causal flag and the number of valid keys of each batch entry.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "attn/problem.h"

namespace attn {

struct Mask {
  bool causal = false;                    // query i sees keys 0…i
  std::optional<at::Tensor> key_lengths;  // int64 [batch]; entry b sees keys 0…key_lengths[b]-1

  // Draws key_lengths from the problem's distribution.
  static Mask from(const Problem& problem, at::Generator generator);

  // The same mask for the batch entries in `batch_index` (int64 [b]).
  Mask select(const at::Tensor& batch_index) const;

  // bool [B,1,L,1], true where key_lengths hides a key from every query; nothing when no key is hidden that way.
  std::optional<at::Tensor> hidden_keys(int64_t key_len) const;

  // bool, broadcastable to [B,H,N,L], true where a query may not see a key; nothing when every pair is visible.
  std::optional<at::Tensor> hidden_pairs(int64_t query_len, int64_t key_len, at::Device device) const;

  // bool [B,1,1,1], true for batch entries that have no visible key at all: their output is zero.
  std::optional<at::Tensor> empty_entries() const;
};

// x with zeros wherever `where` is set, if it is given: values there, NaN included, reach nothing, gradients neither.
at::Tensor zero_where(const at::Tensor& x, const std::optional<at::Tensor>& where);

}  // namespace attn
