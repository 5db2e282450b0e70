// The hash of LSH attention: random rotations, and the bucket of every position by its definition. The kernels compute the same
// buckets (attn/lsh/cpu/hash.h, attn/lsh/cuda/hash.cuh).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <vector>

namespace attn {

// The bucket of every position of qk [B,H,N,D], int64 [B,H,rounds,N]: argmax [y; −y] of y = x · rotation, the first of equals.
// Computed in float64 whatever the dtype, so that the same vectors fall into the same buckets in every dtype, and the float64
// reference finds them there.
//
// rotations: [D,rounds,buckets/2]. With bucket_factors [d,e] there are d·e buckets and the rotations are [D,rounds,(d+e)/2]: a
// bucket is the argmax over the first d/2 columns plus d times that over the other e/2.
at::Tensor lsh_buckets(const at::Tensor& qk, const at::Tensor& rotations, at::OptionalIntArrayRef bucket_factors);

// Even d and e with d·e ≤ buckets, to hash with two short rotations; nothing up to 128 buckets, where one rotation is cheap.
std::optional<std::vector<int64_t>> bucket_factors_of(int64_t buckets);

// Standard normal rotations in float64 for this even number of buckets, factored as bucket_factors_of() says. The same seed gives
// the same rotations on every device. Throws c10::ValueError that names an argument out of range.
at::Tensor draw_rotations(int64_t head_dim, int64_t rounds, int64_t buckets, uint64_t seed, at::Device device);

}  // namespace attn
