// Pattern: which keys a query may see by its distance from them, such as a window or the pattern of Sparse Transformers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace attn {

// Query row r of N stands at position i = r + L − N of the L keys, as if the queries continued the keys. In packed sequences,
// positions count from the beginning of each sequence. The texts of patterns, in sweep files and records:
//
//   all               every key
//   window:W          |i − j| < W; with the causal mask these are W keys, with the query's own
//   window:W+first:k  the first k keys besides ("Efficient Streaming Language Models with Attention Sinks")
//   strided:l         |i − j| < l, or i − j is a multiple of l ("Generating Long Sequences with Sparse Transformers")
//   dilated:W/d       i − j is a multiple of d, and |i − j| < W · d ("Longformer")
//   block:B/c         the same block of B positions, or the last c positions of each earlier block (Sparse Transformers' fixed
//                     pattern)
//   window:W+global:m the first m keys besides, and the queries at the first m positions see every key ("Longformer"); also
//                     `global:m` alone
//
// The causal mask hides what is after i besides. Windows, strides, blocks and `first` may be longer than the sequence.
struct Pattern {
  enum class Kind { all, none, window, strided, dilated, block };

  Kind kind = Kind::all;  // `none` is for `global:m` alone
  int64_t size = 0;       // W, l or B
  int64_t step = 0;       // d or c
  int64_t first = 0;      // k
  int64_t global = 0;     // m

  // Throws c10::ValueError for text of another form, which the message shows with what was expected.
  static Pattern parse(const std::string& text);
  std::string text() const;

  bool is_all() const { return kind == Kind::all; }
  bool operator==(const Pattern&) const = default;

  // bool: whether queries at the positions i see the keys j, without the causal mask. i and j are int64 and broadcast to each
  // other.
  at::Tensor visible(const at::Tensor& i, const at::Tensor& j) const;
};

}  // namespace attn
