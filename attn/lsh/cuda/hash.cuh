// The hash of LSH attention on CUDA. It computes the bucket of every position in every round, exactly as float64 gives it, and
// writes it as a key to sort by.
//
// The products x · rotation are computed in float32. If the largest and the second largest absolute value of a position are
// closer than rounding can have moved them, the position is hashed again in float64. A warp takes 8 positions and divides the
// columns of the rotation among its lanes. A block has 4 warps. Each warp owns this shared memory, in float32:
//
//   x       [8, D]  the vectors of its positions
//   bounds  [8]     how far rounding can have moved the difference of two products
#pragma once

#include "attn/cuda/device.h"
#include "attn/lsh/cuda/params.h"

namespace attn::cuda {

constexpr int kHashedPositions = 8;  // per warp
constexpr int kHashWarps = 4;        // per block

// The largest of the (value, index) pairs compared so far. Of equal values it keeps the one with the smallest index.
struct Largest {
  double value;
  int index;

  __device__ void compare(double other, int at) {
    if (other > value || (other == value && at < index)) {
      value = other;
      index = at;
    }
  }
  __device__ static Largest over_lanes(Largest best) {
    for (int bits = kWarp / 2; bits > 0; bits /= 2) {
      const double value = __shfl_xor_sync(kAllLanes, best.value, bits);
      const int index = __shfl_xor_sync(kAllLanes, best.index, bits);
      best.compare(value, index);
    }
    return best;
  }
};

// argmax [y; −y] in float64, the first index where several entries are equal. A NaN counts as larger than any number. All lanes
// of the warp get the result.
template <class E>
__device__ inline int exact_axis(const E* x, int dim, const double* rotation, int columns, int count) {
  constexpr int kNone = 1 << 30;
  Largest max{-HUGE_VAL, kNone}, min{-HUGE_VAL, kNone};  // of y, and of −y
  int not_a_number = kNone;
  for (int c = lane(); c < count; c += kWarp) {
    double y = 0;
    for (int d = 0; d < dim; ++d) y += double(to_float(x[d])) * rotation[int64_t(d) * columns + c];
    if (y != y && c < not_a_number) not_a_number = c;
    max.compare(y, c), min.compare(-y, c);
  }
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    const int other = __shfl_xor_sync(kAllLanes, not_a_number, bits);
    not_a_number = other < not_a_number ? other : not_a_number;
  }
  max = Largest::over_lanes(max);
  min = Largest::over_lanes(min);
  if (not_a_number != kNone) return not_a_number + count;
  if (max.index == kNone) return 0;
  return max.value >= min.value ? max.index : min.index + count;
}

// argmax [y; −y] of the warp's positions in float32, or −1 where the precision of float32 does not decide it. Lane p gets the
// result of position p.
template <class E>
__device__ inline int rounded_axis(const float* x, const float* bounds, int dim, const float* rotation, int columns, int count) {
  float first[kHashedPositions], second[kHashedPositions];
  int at[kHashedPositions];
#pragma unroll
  for (int p = 0; p < kHashedPositions; ++p) {
    first[p] = second[p] = -1;
    at[p] = 0;
  }
  for (int c = lane(); c < count; c += kWarp) {
    float y[kHashedPositions] = {};
    for (int d = 0; d < dim; ++d) {
      const float r = rotation[int64_t(d) * columns + c];
#pragma unroll
      for (int p = 0; p < kHashedPositions; ++p) y[p] += x[p * dim + d] * r;
    }
#pragma unroll
    for (int p = 0; p < kHashedPositions; ++p) {
      const float size = y[p] < 0 ? -y[p] : y[p];
      if (size > first[p]) {
        second[p] = first[p];
        first[p] = size;
        at[p] = y[p] < 0 ? c + count : c;
      } else if (!(size <= second[p])) second[p] = size;
    }
  }
  int decided = -1;
#pragma unroll
  for (int p = 0; p < kHashedPositions; ++p) {
    for (int bits = kWarp / 2; bits > 0; bits /= 2) {
      const float other_first = __shfl_xor_sync(kAllLanes, first[p], bits);
      const float other_second = __shfl_xor_sync(kAllLanes, second[p], bits);
      const int other_at = __shfl_xor_sync(kAllLanes, at[p], bits);
      const bool other_wins = other_first > first[p] || (other_first == first[p] && other_at < at[p]);
      const float loser = other_wins ? first[p] : other_first;
      if (other_wins) {
        first[p] = other_first;
        at[p] = other_at;
      }
      second[p] = second[p] > other_second ? second[p] : other_second;
      if (!(loser <= second[p])) second[p] = loser;
    }
    if (lane() == p) decided = first[p] - second[p] > bounds[p] ? at[p] : -1;
  }
  return decided;
}

// Writes keys[(g·R + r)·N + i] = ((g·R + r)·(buckets + 1) + bucket)·2^position_bits + i, for head g, round r and position i.
// Hidden positions get the bucket number `buckets`, so that they are sorted after all others.
template <class E>
__global__ void __launch_bounds__(kHashWarps* kWarp)
    hash(LshParams params, LshRotations rotations, int64_t buckets, int position_bits, uint64_t* keys) {
  float* x = reinterpret_cast<float*>(shared_memory()) + int64_t(warp()) * kHashedPositions * (params.head_dim + 1);
  float* bounds = x + kHashedPositions * params.head_dim;
  const int64_t groups = (params.length + kHashedPositions - 1) / kHashedPositions;
  const int64_t group = int64_t(blockIdx.x) * kHashWarps + warp();
  if (group >= params.batch * params.heads * groups) return;  // true for all lanes of a warp or for none
  const int64_t g = group / groups, begin = group % groups * kHashedPositions;
  const int count = int(params.length - begin < kHashedPositions ? params.length - begin : kHashedPositions);
  const int64_t visible_keys = params.key_lengths ? params.key_lengths[g / params.heads] : params.length;
  const E* rows = static_cast<const E*>(params.qk.data) + g / params.heads * params.qk.batch_stride +
                  g % params.heads * params.qk.head_stride;
  const float rounding = 2 * *rotations.max_norm * float(params.head_dim + 4) * 6e-8f;
  for (int p = 0; p < kHashedPositions; ++p) {
    float squares = 0;
    for (int d = lane(); d < params.head_dim; d += kWarp) {
      const float entry = p < count ? to_float(rows[(begin + p) * params.qk.row_stride + d]) : 0;
      x[p * params.head_dim + d] = entry;
      squares += entry * entry;
    }
    squares = sum_over_lanes(squares);
    if (lane() == 0) bounds[p] = sqrtf(squares) * rounding;  // if x is not finite, this is not finite, and float64 decides
  }
  __syncwarp();
  const int columns = rotations.first_half + rotations.second_half;
  for (int64_t r = 0; r < params.rounds; ++r) {
    int bucket = 0;  // the bucket of position begin + lane()
    for (int half = 0; half < (rotations.second_half > 0 ? 2 : 1); ++half) {
      const int size = half == 0 ? rotations.first_half : rotations.second_half;
      const int64_t from = r * params.head_dim * columns + (half == 0 ? 0 : rotations.first_half);
      int axis = rounded_axis<E>(x, bounds, params.head_dim, rotations.rounded + from, columns, size);
      for (int p = 0; p < count; ++p) {
        if (__shfl_sync(kAllLanes, axis, p) >= 0) continue;
        const int exact =
            exact_axis(rows + (begin + p) * params.qk.row_stride, params.head_dim, rotations.exact + from, columns, size);
        if (lane() == p) axis = exact;
      }
      bucket += half == 0 ? axis : axis * 2 * rotations.first_half;
    }
    if (lane() >= count) continue;
    const int64_t i = begin + lane(), segment = g * params.rounds + r;
    const uint64_t place = uint64_t(segment * (buckets + 1) + (i < visible_keys ? bucket : buckets));
    keys[segment * params.length + i] = place << position_bits | uint64_t(i);
  }
}

// Writes the positions that are packed into the sorted keys to `order`.
inline __global__ void unpack_positions(const uint64_t* keys, int64_t count, int position_bits, int64_t* order) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) order[i] = int64_t(keys[i] & ((uint64_t(1) << position_bits) - 1));
}

}  // namespace attn::cuda
