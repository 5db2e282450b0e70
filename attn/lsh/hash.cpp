// Multiplies positions with random rotations, and takes the nearest axis as the bucket.
#include "attn/lsh/hash.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

namespace attn {
namespace {

using at::Tensor;

constexpr int64_t kMaxUnfactored = 128;  // up to this many buckets are hashed with one rotation

// argmax [y; −y] over the last dimension, the first index where several entries are equal.
Tensor nearest_axis(const Tensor& y) {
  const auto [max, at_max] = y.max(-1);
  const auto [min, at_min] = y.min(-1);
  return at::where(max >= min.neg(), at_max, at_min + y.size(-1));
}

}  // namespace

// Both profiles have the same buckets. fast-transformers hashes x / ‖x‖, but dividing a vector by its norm does not change the
// argmax.
at::Tensor lsh_buckets(const at::Tensor& qk, const at::Tensor& rotations, at::OptionalIntArrayRef bucket_factors) {
  const auto rounds = rotations.size(1), columns = rotations.size(2);
  const auto rotated = at::matmul(qk.detach().to(at::kDouble), rotations.detach().to(at::kDouble).flatten(1))
                           .view({qk.size(0), qk.size(1), qk.size(2), rounds, columns});
  if (!bucket_factors) return nearest_axis(rotated).transpose(2, 3).contiguous();
  const auto d = (*bucket_factors)[0], e = (*bucket_factors)[1];
  const auto first = nearest_axis(rotated.narrow(4, 0, d / 2)), second = nearest_axis(rotated.narrow(4, d / 2, e / 2));
  return first.add(second, d).transpose(2, 3).contiguous();
}

std::optional<std::vector<int64_t>> bucket_factors_of(int64_t buckets) {
  if (buckets <= kMaxUnfactored) return std::nullopt;
  int64_t d = 2;
  while (d * d < buckets) d *= 2;
  return std::vector<int64_t>{d, 2 * (buckets / (2 * d))};
}

at::Tensor draw_rotations(int64_t head_dim, int64_t rounds, int64_t buckets, uint64_t seed, at::Device device) {
  TORCH_CHECK_VALUE(head_dim >= 1, "draw_rotations: head_dim = ", head_dim, ", expected at least 1");
  TORCH_CHECK_VALUE(rounds >= 1, "draw_rotations: rounds = ", rounds, ", expected at least 1");
  TORCH_CHECK_VALUE(buckets >= 2 && buckets % 2 == 0, "draw_rotations: buckets = ", buckets,
                    ", expected an even number of at least 2");
  const auto factors = bucket_factors_of(buckets);
  const auto columns = factors ? ((*factors)[0] + (*factors)[1]) / 2 : buckets / 2;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({head_dim, rounds, columns}, generator, at::TensorOptions(at::kDouble)).to(device);
}

}  // namespace attn
