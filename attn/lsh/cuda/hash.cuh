// Buckets of LSH attention, as keys to sort by. A warp takes eight positions; its lanes share the rotation's columns.
//
// Products are in float32. Where the two largest are closer than rounding can have moved them, the position is hashed again in
// float64; so buckets are those of float64 always.
#pragma once

#include "attn/lsh/cuda/call.h"
#include "attn/cuda/tiles.cuh"

namespace attn::cuda {

constexpr int kHashedPositions = 8, kHashWarps = 4;  // a warp; a block

// The best of (value, index) pairs over the lanes: the largest value, the first of equals.
struct Best {
  double value;
  int index;

  __device__ void take(double other, int at) {
    if (other > value || (other == value && at < index)) value = other, index = at;
  }
  __device__ static Best over_lanes(Best best) {
    for (int bits = kWarp / 2; bits > 0; bits /= 2) {
      const double value = __shfl_xor_sync(kAllLanes, best.value, bits);
      const int index = __shfl_xor_sync(kAllLanes, best.index, bits);
      best.take(value, index);
    }
    return best;
  }
};

// argmax [y; −y], exactly. A NaN among y is its largest and its smallest.
template <class E>
__device__ inline int exact_axis(const E* x, int dim, const double* rotation, int columns, int count) {
  constexpr int kNone = 1 << 30;
  Best most{-HUGE_VAL, kNone}, least{-HUGE_VAL, kNone};
  int not_a_number = kNone;
  for (int c = lane(); c < count; c += kWarp) {
    double y = 0;
    for (int d = 0; d < dim; ++d) y += double(to_float(x[d])) * rotation[int64_t(d) * columns + c];
    if (y != y && c < not_a_number) not_a_number = c;
    most.take(y, c), least.take(-y, c);
  }
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    const int other = __shfl_xor_sync(kAllLanes, not_a_number, bits);
    not_a_number = other < not_a_number ? other : not_a_number;
  }
  most = Best::over_lanes(most), least = Best::over_lanes(least);
  if (not_a_number != kNone) return not_a_number + count;
  if (most.index == kNone) return 0;
  return most.value >= least.value ? most.index : least.index + count;
}

// For the warp's positions, each with the lane of its number: the axis where float32 decides, −1 where it does not.
template <class E>
__device__ inline int rounded_axis(const float* x, const float* bounds, int dim, const float* rotation, int columns, int count) {
  float first[kHashedPositions], second[kHashedPositions];
  int at[kHashedPositions];
#pragma unroll
  for (int p = 0; p < kHashedPositions; ++p) first[p] = second[p] = -1, at[p] = 0;
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
      if (size > first[p]) second[p] = first[p], first[p] = size, at[p] = y[p] < 0 ? c + count : c;
      else if (!(size <= second[p])) second[p] = size;
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
      if (other_wins) first[p] = other_first, at[p] = other_at;
      second[p] = second[p] > other_second ? second[p] : other_second;
      if (!(loser <= second[p])) second[p] = loser;
    }
    if (lane() == p) decided = first[p] - second[p] > bounds[p] ? at[p] : -1;
  }
  return decided;
}

// keys[(g·R + r)·N + i] = ((g·R + r)·(buckets + 1) + bucket)·2^position_bits + i, hidden positions in a bucket behind all others.
template <class E>
__global__ void __launch_bounds__(kHashWarps* kWarp)
    hash(LshCall c, LshRotations rotations, int64_t buckets, int position_bits, uint64_t* keys) {
  float* x = reinterpret_cast<float*>(shared_memory()) + int64_t(warp()) * kHashedPositions * (c.head_dim + 1);
  float* bounds = x + kHashedPositions * c.head_dim;
  const int64_t groups = (c.length + kHashedPositions - 1) / kHashedPositions;
  const int64_t group = int64_t(blockIdx.x) * kHashWarps + warp();
  if (group >= c.batch * c.heads * groups) return;  // whole warps
  const int64_t g = group / groups, begin = group % groups * kHashedPositions;
  const int count = int(c.length - begin < kHashedPositions ? c.length - begin : kHashedPositions);
  const int64_t visible = c.key_lengths ? c.key_lengths[g / c.heads] : c.length;
  const E* rows = static_cast<const E*>(c.qk.data) + g / c.heads * c.qk.batch_stride + g % c.heads * c.qk.head_stride;
  const float rounding = 2 * *rotations.longest * float(c.head_dim + 4) * 6e-8f;
  for (int p = 0; p < kHashedPositions; ++p) {
    float squares = 0;
    for (int d = lane(); d < c.head_dim; d += kWarp) {
      const float entry = p < count ? to_float(rows[(begin + p) * c.qk.row_stride + d]) : 0;
      x[p * c.head_dim + d] = entry;
      squares += entry * entry;
    }
    squares = sum_over_lanes(squares);
    if (lane() == 0) bounds[p] = sqrtf(squares) * rounding;  // not finite: never decided here
  }
  __syncwarp();
  const int columns = rotations.first_half + rotations.second_half;
  for (int64_t r = 0; r < c.rounds; ++r) {
    int bucket = 0;  // of the position with the lane's number
    for (int half = 0; half < (rotations.second_half > 0 ? 2 : 1); ++half) {
      const int size = half == 0 ? rotations.first_half : rotations.second_half;
      const int64_t from = r * c.head_dim * columns + (half == 0 ? 0 : rotations.first_half);
      int axis = rounded_axis<E>(x, bounds, c.head_dim, rotations.rounded + from, columns, size);
      for (int p = 0; p < count; ++p) {
        if (__shfl_sync(kAllLanes, axis, p) >= 0) continue;
        const int exact = exact_axis(rows + (begin + p) * c.qk.row_stride, c.head_dim, rotations.exact + from, columns, size);
        if (lane() == p) axis = exact;
      }
      bucket += half == 0 ? axis : axis * 2 * rotations.first_half;
    }
    if (lane() >= count) continue;
    const int64_t i = begin + lane(), segment = g * c.rounds + r;
    const uint64_t place = uint64_t(segment * (buckets + 1) + (i < visible ? bucket : buckets));
    keys[segment * c.length + i] = place << position_bits | uint64_t(i);
  }
}

inline __global__ void unpack_positions(const uint64_t* keys, int64_t count, int position_bits, int64_t* order) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) order[i] = int64_t(keys[i] & ((uint64_t(1) << position_bits) - 1));
}

}  // namespace attn::cuda
