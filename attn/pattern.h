// Pattern: which keys a query may see by their positions, such as a window or the patterns of Sparse Transformers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace attn {

// Query row r of N stands at position i = r + L − N of the L keys, as if the queries continued the keys. In packed sequences,
// positions count from the beginning of each sequence. The texts of patterns, in sweep files and records:
//
//   all               every key
//   window:W          |i − j| < W; with the causal mask these are W keys, of which the query's own is the last
//   window:W+first:k  also the first k keys ("Efficient Streaming Language Models with Attention Sinks")
//   strided:l         |i − j| < l, or i − j is a multiple of l ("Generating Long Sequences with Sparse Transformers")
//   dilated:W/d       i − j is a multiple of d, and |i − j| < W · d ("Longformer")
//   block:B/c         the same block of B positions, or the last c positions of each earlier block (Sparse Transformers' fixed
//                     pattern)
//   window:W+global:m also the first m keys, and the queries at the first m positions see every key ("Longformer"); `global:m`
//                     may also be used alone
//
// The causal mask additionally hides the keys after i. Windows, strides, blocks and k may be longer than the sequence.
struct Pattern {
  enum class Kind { all, none, window, strided, dilated, block };

  Kind kind = Kind::all;  // `none` is `global:m` without a window
  int64_t size = 0;       // W, l or B
  int64_t step = 0;       // d or c
  int64_t first = 0;      // k
  int64_t global = 0;     // m

  // Throws c10::ValueError for text of another form; the message shows the text and what was expected.
  static Pattern parse(const std::string& text);
  std::string text() const;

  bool is_all() const { return kind == Kind::all; }
  bool operator==(const Pattern&) const = default;

  // Whether queries at the positions i see the keys at the positions j, without the causal mask: bool. i and j are int64, and are
  // broadcast to each other.
  at::Tensor visible(const at::Tensor& i, const at::Tensor& j) const;
};

}  // namespace attn
