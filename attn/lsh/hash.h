// The hash of LSH attention: random rotations, and the bucket of every position by its definition. attn/lsh/cpu/hash.h and
// attn/lsh/cuda/hash.cuh compute the same buckets faster.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <vector>

namespace attn {

// Returns the bucket of every position of qk [B,H,N,D] in every round, int64 [B,H,rounds,N]. The bucket of a vector x is
// argmax [y; −y] of y = x · rotation, the first index where several entries are equal. It is computed in float64 whatever the
// dtypes of qk and rotations are, so that equal vectors fall into equal buckets in every dtype and in the float64 reference.
//
// rotations is [D,rounds,buckets/2]. With bucket_factors [d,e] there are d·e buckets and rotations is [D,rounds,(d+e)/2]: a
// bucket is then the argmax over the first d/2 columns plus d times the argmax over the other e/2. Arguments are not checked.
at::Tensor lsh_buckets(const at::Tensor& qk, const at::Tensor& rotations, at::OptionalIntArrayRef bucket_factors);

// Returns even d and e with d·e ≤ buckets, so that two short rotations take the place of a long one. Returns nothing for up to
// 128 buckets, for which one rotation is cheap.
std::optional<std::vector<int64_t>> bucket_factors_of(int64_t buckets);

// Draws standard normal rotations for `buckets` buckets, an even number, factored as bucket_factors_of() says: float64
// [head_dim,rounds,buckets/2] or [head_dim,rounds,(d+e)/2]. The same seed gives the same rotations on every device. Throws
// c10::ValueError that names an argument that is out of range.
at::Tensor draw_rotations(int64_t head_dim, int64_t rounds, int64_t buckets, uint64_t seed, at::Device device);

}  // namespace attn
