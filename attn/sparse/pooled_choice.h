// The choice of blocks of keys by the mean of their keys, as in MoBA (2502.13189).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace attn {

// The means of blocks of `block` positions of x [B,H,L,D], over the valid ones where there are key lengths (int64 [B]):
// [B,H,⌈L/block⌉,D] in `dtype`. The mean of no position is 0.
at::Tensor pooled_blocks(const at::Tensor& x, int64_t block, const std::optional<at::Tensor>& key_lengths, at::ScalarType dtype);

// For each query, the block of its own position, and the `count` blocks among the others that have the largest products of the
// query with the mean of the keys; with `causal` among those before its own. Equal products choose the lower block. Blocks
// without a valid key are not chosen. int64 [B,H,N,count+1], where −1 stands for no block. q is [B,H,N,D], k [B,G,L,D], and G
// divides H.
//
// The choice is that of products in float64: these are computed where those of float32 are too close to tell.
at::Tensor choose_blocks(const at::Tensor& q, const at::Tensor& k, bool causal, const std::optional<at::Tensor>& key_lengths,
                         int64_t block, int64_t count);

}  // namespace attn
