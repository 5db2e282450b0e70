// The choice of blocks of keys by the mean of their keys, as in MoBA (arXiv 2502.13189).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace attn {

// The means of blocks of `block` positions of x [B,H,L,D]: [B,H,⌈L/block⌉,D] in `dtype`. With key lengths (int64 [B]) they are
// means of the valid positions, and 0 for a block that has none.
at::Tensor pooled_blocks(const at::Tensor& x, int64_t block, const std::optional<at::Tensor>& key_lengths, at::ScalarType dtype);

// For each query the block of its own position and, among the other blocks, the `count` blocks whose mean keys have the largest
// scalar products with the query: int64 [B,H,N,count+1], where −1 stands for no block. With `causal` only blocks before its own
// are candidates. Of equal products the lower block is chosen. Blocks without a valid key are not chosen. q is [B,H,N,D], k is
// [B,G,L,D], and G divides H.
//
// The choice is that of products in float64, which are computed where products in float32 are too close to decide.
at::Tensor choose_blocks(const at::Tensor& q, const at::Tensor& k, bool causal, const std::optional<at::Tensor>& key_lengths,
                         int64_t block, int64_t count);

}  // namespace attn
