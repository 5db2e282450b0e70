// LSH attention of Reformer (2001.04451) with shared queries and keys: qk [B,H,N,D], v [B,H,N,M] → [B,H,N,M]. It is also the
// PyTorch operator attn::lsh_attention (operator.cpp).
//
// In each round every position falls into a bucket, positions are sorted by (bucket, position), and the sorted sequence is cut
// into chunks. A query sees the keys of its own chunk and of the chunk before, as far as the mask allows; a key that is met in
// several rounds counts each time. Memory is O(N · chunk · rounds). No gradient passes through hash or sort.
//
// The profiles differ:                trax                               fast-transformers
//   keys (logits q·key/√D)            x / √(mean x² + 1e-6)              x / ‖x‖, zero for x = 0
//   the first chunk looks back to     the last one of the round before   nothing
//                                     (round 0: of the last round)
//   own position                      logit − 1e5                        as any other
//   rounds                            weighted by their log-sum-exp      plain mean; a round without visible keys gives zeros
//
// A single chunk in a single round looks back to nothing: no place is counted twice.
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

// rotations: floating [D,rounds,buckets/2] for all batch entries and heads, or with bucket_factors as lsh_buckets() says.
// key_lengths: int64 [B]; values outside 0…N count as the nearest. A hidden position is still a query: it is sorted after all
// visible ones and sees what its chunk and the one before hold. A query that sees nothing gives zeros and zero gradients. A NaN
// or infinity makes the rows that see it NaN and no others; at a hidden position it reaches its own row only, and no gradient.
//
// implementation: as in ImplementationRequest::wanted.
//
// Throws c10::ValueError naming the argument, what was found and what was expected.
at::Tensor lsh_attention(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& rotations, int64_t chunk, bool causal,
                         const std::optional<at::Tensor>& key_lengths, std::string_view profile,
                         at::OptionalIntArrayRef bucket_factors, std::string_view implementation = "auto");

}  // namespace attn
