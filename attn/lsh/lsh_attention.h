// LSH attention of Reformer (2001.04451) with shared queries and keys: qk [B,H,N,D], v [B,H,N,M] → [B,H,N,M]. This function is
// also the PyTorch operator attn::lsh_attention (operator.cpp). The operator attn::lsh_rotations(int head_dim, int rounds,
// int buckets, int seed) -> (Tensor, int[]) draws rotations as the methods `lsh` do, and gives the bucket factors that belong to
// them, or none.
//
// In each round every position falls into a bucket, positions are sorted by (bucket, position), and the sorted sequence is cut
// into chunks. A query sees the keys of its own chunk and of the chunk before it, as far as the mask allows. A key that a query
// meets several times counts each time. Memory is O(N · chunk · rounds). No gradient passes through the hash or the sort.
//
// The profiles differ:                trax                               fast-transformers
//   keys (logits q·key/√D)            x / √(mean x² + 1e-6)              x / ‖x‖, zero for x = 0
//   a round's first chunk looks       the last chunk of the round        no chunk
//   back to                           before, round 0 to that of the
//                                     last round
//   logit of the own position         reduced by 1e5                     as any other
//   rounds are combined by            weights from their log-sum-exp     plain mean; a round without visible keys gives zeros
//
// If there is a single chunk in a single round, it looks back to no chunk, so that it does not meet its own keys twice.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string>
#include <string_view>

#include "attn/lsh/hash.h"

namespace attn {

constexpr const char* kTrax = "trax";
constexpr const char* kFastTransformers = "fast-transformers";

// qk and v have one floating dtype and one device, and any strides. The output has their dtype.
//
// rotations: of any floating dtype, [D,rounds,buckets/2], for all batch entries and heads. With bucket_factors their shape is as
// lsh_buckets() says.
// chunk: positions in a chunk, at least 1.
// key_lengths: int64 [B], on the device of qk; values outside 0…N are clamped. A hidden position is still a query: it is sorted
// after all visible ones and sees the visible keys of its chunk and of the chunk before it.
// profile: kTrax or kFastTransformers.
// implementation: as in ImplementationRequest::wanted.
//
// A query that sees no key gives zeros and zero gradients. A NaN or infinity makes exactly the rows that see it NaN. At a hidden
// position it changes the row of that position only, and no gradient.
//
// Throws c10::ValueError that names the argument, what was found and what was expected.
at::Tensor lsh_attention(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& rotations, int64_t chunk, bool causal,
                         const std::optional<at::Tensor>& key_lengths, std::string_view profile,
                         at::OptionalIntArrayRef bucket_factors, std::string_view implementation = "auto");

}  // namespace attn
