// The hash of LSH attention on the CPU: the bucket of every position in every round, exactly as float64 gives it.
//
// The products x · rotation are computed in float32, with 64 positions as lanes. If the largest and the second largest absolute
// value of a position are closer than rounding can have moved them, the position is hashed again in float64.
#pragma once

#include <cmath>
#include <cstring>

#include "attn/cpu/products.h"
#include "attn/lsh/cpu/rows.h"
#include "attn/lsh/cpu/scratch.h"

namespace attn::cpu {
namespace {

template <class V, class E>
class LshHash {
 public:
  // `memory` has room for LshScratch::size() numbers.
  LshHash(const LshHeadParams& params, void* memory) : LshHash(params, ScratchCutter(memory)) {}

  // Implements LshKernels::hash.
  void hash(int64_t begin, int64_t end, const LshRotations& rotations, int32_t* buckets) {
    const int64_t columns = rotations.first_half + rotations.second_half;
    // Times ‖x‖, this bounds how far rounding can have moved the difference of two products.
    const float rounding = 2 * rotations.max_norm * float(p_.dim + 4) * 6e-8f;
    for (int64_t first = begin; first < end; first += kMaxQueries) {
      const int64_t count = end - first < kMaxQueries ? end - first : kMaxQueries;
      for (int64_t i = 0; i < kMaxQueries; ++i) {
        float* x = b_.x + i * b_.dim;
        b_.query_not_finite[i] = 0;
        if (i < count) b_.query_not_finite[i] = !load_finite_row<V, E>(p_.qk, first + i, p_.dim, x);
        else zero_row<V>(x, b_.dim);
        b_.factors[i] = std::sqrt(dot<V>(x, x, b_.dim)) * rounding;
      }
      transpose<V>(b_.x, b_.dim, kMaxQueries, b_.dim, b_.x_transposed, kMaxQueries);
      for (int64_t r = 0; r < p_.rounds; ++r) {
        for (int half = 0; half < (rotations.second_half > 0 ? 2 : 1); ++half) {
          const int64_t size = half == 0 ? rotations.first_half : rotations.second_half;
          const int64_t from = (r * columns + (half == 0 ? 0 : rotations.first_half)) * p_.dim;
          nearest(rotations.rounded + from, size);
          for (int64_t i = 0; i < count; ++i) {
            auto axis = int32_t(axes_[i]);
            if (b_.query_not_finite[i] || !(margins_[i] > b_.factors[i]))
              axis = int32_t(exact_axis(rotations.exact + from, size, p_.dim, [&](int64_t d) {
                return number(static_cast<const E*>(p_.qk.data)[(first + i) * p_.qk.stride + d]);
              }));
            int32_t& bucket = buckets[r * p_.length + first + i];
            bucket = half == 0 ? axis : bucket + axis * int32_t(2 * rotations.first_half);
          }
        }
      }
    }
  }

 private:
  LshHash(const LshHeadParams& params, ScratchCutter cut) : p_(params), b_(params, cut) {}

  // For the vectors in b_.x_transposed, sets axes_ to the first argmax of [y; −y], and margins_ to the difference between the
  // largest and the second largest |y|.
  void nearest(const float* rotations, int64_t columns) {
    constexpr int64_t kGroup = 16;
    float best[kMaxQueries], second[kMaxQueries];
    for (int64_t i = 0; i < kMaxQueries; ++i) {
      best[i] = second[i] = -1;
      axes_[i] = 0;
    }
    for (int64_t c = 0; c < columns; c += kGroup) {
      const int64_t count = columns - c < kGroup ? columns - c : kGroup;
      product<V, false>(rotations + c * p_.dim, p_.dim, 1, b_.x_transposed, kMaxQueries, (count + 3) / 4 * 4, p_.dim, kMaxQueries,
                        b_.weights, kMaxQueries);
      for (int64_t k = 0; k < count; ++k)
        for (int64_t i = 0; i < kMaxQueries; i += V::kLanes) {
          const auto y = V::load(b_.weights + k * kMaxQueries + i), size = V::max(y, V::sub(V::zero(), y));
          const auto max = V::load(best + i);
          const auto axis = V::choose(V::greater(V::zero(), y), V::all(float(c + k + columns)), V::all(float(c + k)));
          V::store(second + i, V::max(V::load(second + i), V::min(size, max)));
          V::store(best + i, V::max(size, max));
          V::store(axes_ + i, V::choose(V::greater(size, max), axis, V::load(axes_ + i)));
        }
    }
    for (int64_t i = 0; i < kMaxQueries; ++i) margins_[i] = best[i] - second[i];
  }

  static float number(float x) { return x; }
  static float number(BFloat16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float result = 0;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
  }

  const LshHeadParams& p_;
  LshScratch b_;
  float axes_[kMaxQueries], margins_[kMaxQueries];
};

}  // namespace
}  // namespace attn::cpu
