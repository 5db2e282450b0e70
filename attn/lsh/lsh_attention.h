// LSH attention of Reformer (2001.04451) with shared queries and keys: qk [B,H,N,D], v [B,H,N,M] → [B,H,N,M]. Also the
// PyTorch operator attn::lsh_attention.
//
// In each round every position falls into a bucket, positions are sorted by (bucket, position), and the sorted sequence is cut
// into chunks. A query sees the keys of its own chunk and of the chunk before, as far as the mask allows; a key met in several
// rounds counts each time. Memory is O(N · chunk · rounds), no gradient passes through hash or sort.
//
// The profiles differ:                trax                               fast-transformers
//   keys (logits q·key/√D)            x / √(mean x² + 1e-6)              x / ‖x‖, zero for x = 0
//   the first chunk looks back to     the last one of the round before   nothing
//                                     (round 0: of the last round)
//   own position                      logit − 1e5                        as any other
//   rounds                            weighted by their log-sum-exp      plain mean, a round without visible keys giving zeros
//
// A single chunk in a single round looks back to nothing: no place is counted twice.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

constexpr const char* kTrax = "trax";
constexpr const char* kFastTransformers = "fast-transformers";

// rotations: floating [D,rounds,buckets/2] for all batch entries and heads; with bucket_factors [d,e] the buckets are d·e and
// the rotations [D,rounds,(d+e)/2]. key_lengths: int64 [B]; values outside 0…N count as the nearest. A hidden position is
// still a query: it lies behind all visible ones and sees what its chunk and the one before hold. A query that sees nothing
// gives zeros and zero gradients. A NaN or infinity makes the rows that see it NaN and no others; at a hidden position it
// reaches nothing but its own row, and no gradient.
//
// kernel: see kernels::find_lsh().
//
// Throws c10::ValueError naming the argument, what was found and what was expected.
at::Tensor lsh_attention(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& rotations, int64_t chunk, bool causal,
                         const std::optional<at::Tensor>& key_lengths, std::string_view profile,
                         at::OptionalIntArrayRef bucket_factors, std::string_view kernel = "auto");

// The bucket of every position, int64 [B,H,rounds,N]. Computed in float64 whatever the input, so that the same vectors fall
// into the same buckets in every type, and the float64 reference finds them there.
at::Tensor lsh_buckets(const at::Tensor& qk, const at::Tensor& rotations, at::OptionalIntArrayRef bucket_factors);

// [d,e] with d·e ≤ buckets to hash with two short rotations, or nothing up to 128 buckets, where one is cheap.
std::optional<std::vector<int64_t>> bucket_factors_of(int64_t buckets);

// Standard normal rotations in float64 for this even number of buckets, factored as bucket_factors_of says: the same from the
// same seed on every device.
at::Tensor draw_rotations(int64_t head_dim, int64_t rounds, int64_t buckets, uint64_t seed, at::Device device);

}  // namespace attn
