// Mask: which keys a query may see, given by a causal flag, a pattern, the number of valid keys of each batch entry, and the
// borders of packed sequences.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "attn/pattern.h"
#include "attn/problem.h"

namespace attn {

struct Mask {
  // Query i of N sees keys 0 … i + L − N of L: the last query sees all keys, as if the queries continued the keys.
  bool causal = false;
  std::optional<at::Tensor> key_lengths = std::nullopt;  // int64 [B]; the queries of entry b see keys 0…key_lengths[b]-1
  Pattern pattern = {};                                  // which of these keys a query sees by its distance from them
  // int64 [S+1], rising from 0 to N = L: S sequences follow each other in each batch entry, and a query sees keys of its own
  // alone.
  std::optional<at::Tensor> cu_seqlens = std::nullopt;

  // The mask of a problem, on its device. Random key lengths and borders are drawn with `generator`, a generator of the CPU.
  static Mask from(const Problem& problem, const at::Generator& generator);

  // The same mask for the batch entries in `batch_index` (int64 [b]).
  Mask select(const at::Tensor& batch_index) const;

  // bool [B,1,L,1], true where key_lengths hides a key from every query; nothing without key lengths.
  std::optional<at::Tensor> hidden_keys(int64_t key_len) const;

  // Whether a query sees every key that the causal mask and key_lengths leave it.
  bool sees_all() const { return pattern.is_all() && !cu_seqlens; }

  // bool, broadcastable to [B,H,N,L], true where a query may not see a key; nothing if the mask hides no pair.
  std::optional<at::Tensor> hidden_pairs(int64_t query_len, int64_t key_len, at::Device device) const;

  // bool [B,1,R,L], or [1,1,R,L] without key lengths: whether query rows[r] (int64 [R]) of query_len may see key l.
  at::Tensor visible_pairs(const at::Tensor& rows, int64_t query_len, int64_t key_len) const;

  // bool, broadcastable to [B,H,N,1], true for queries that see no key, whose output is zero; nothing if there can be none. With
  // key lengths these are the batch entries without keys, and with the causal mask the first queries if there are more queries
  // than keys. With a pattern they are found from hidden_pairs(), which is computed unless it is given. Packed sequences without
  // a pattern leave every query its own key.
  std::optional<at::Tensor> empty_rows(int64_t query_len, int64_t key_len, at::Device device,
                                       const std::optional<at::Tensor>& hidden = std::nullopt) const;
};

// x with zeros wherever `where` (bool, broadcastable to x) is true, or x itself if `where` is absent. The replaced entries, even
// NaN, affect neither the result nor a gradient.
at::Tensor zero_where(const at::Tensor& x, const std::optional<at::Tensor>& where);

}  // namespace attn
