// Neon: vectors of float32 for 64-bit ARM processors, with the interface of Avx512 in simd.h, which includes this file.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace attn::cpu {
namespace {

// Masks of loads and stores must select the first lanes, as those of first() do.
struct Neon {
  using F = float32x4_t;
  using Mask = uint32x4_t;
  static constexpr int kLanes = 4;

  static F zero() { return vdupq_n_f32(0); }
  static F all(float x) { return vdupq_n_f32(x); }
  static F load(const float* p) { return vld1q_f32(p); }
  static F load(const BFloat16* p) { return widen(vld1_u16(&p->bits)); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static void store(BFloat16* p, F x) { vst1_u16(&p->bits, narrow(x)); }

  static Mask first(int64_t n) { return vcltq_s32(lane_numbers(), vdupq_n_s32(int32_t(n))); }
  static Mask from(int64_t n) { return vcgeq_s32(lane_numbers(), vdupq_n_s32(int32_t(n))); }
  template <class E>
  static F load(const E* p, Mask mask) {
    E whole[kLanes] = {};
    std::memcpy(whole, p, sizeof(E) * count(mask));
    return load(whole);
  }
  template <class E>
  static void store(E* p, F x, Mask mask) {
    E whole[kLanes];
    store(whole, x);
    std::memcpy(p, whole, sizeof(E) * count(mask));
  }
  static F keep(F x, Mask mask) { return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), mask)); }
  static F choose(Mask mask, F where_set, F otherwise) { return vbslq_f32(mask, where_set, otherwise); }
  static Mask greater(F a, F b) { return vcgtq_f32(a, b); }
  static Mask at_least(const int32_t* numbers, int32_t bound) { return vcgeq_s32(vld1q_s32(numbers), vdupq_n_s32(bound)); }
  static Mask equal(const int32_t* numbers, int32_t other) { return vceqq_s32(vld1q_s32(numbers), vdupq_n_s32(other)); }

  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }  // b where either is NaN
  static F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static F sqrt(F a) { return vsqrtq_f32(a); }
  static float sum(F a) { return vaddvq_f32(a); }
  static void store_sums(float* to, F a, F b, F c, F d, float factor) {
    store(to, mul(vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)), all(factor)));
  }
  static float largest(F a) { return vmaxvq_f32(a); }

  static F exp(F x) {
    x = min(all(kMaxExp), max(all(kMinExp), x));
    const F n = sub(fma(x, all(kLog2E), all(kRounder)), all(kRounder));
    const F f = vfmsq_f32(vfmsq_f32(x, n, all(kLn2High)), n, all(kLn2Low));
    F p = all(kExpCoefficients[6]);
    for (int i = 5; i >= 0; --i) p = fma(p, f, all(kExpCoefficients[i]));
    // 2ⁿ is computed as two factors, because n may be beyond the range of the exponent of one float32.
    const auto whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    return mul(mul(p, power_of_two(half)), power_of_two(vsubq_s32(whole, half)));
  }

  static F exp_nonpositive(F x) { return exp(x); }

  // to[c·to_stride + r] = from[r·from_stride + c] for r, c < 4.
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    const F a = load(from), b = load(from + from_stride), c = load(from + 2 * from_stride), d = load(from + 3 * from_stride);
    const F ab = vtrn1q_f32(a, b), cd = vtrn1q_f32(c, d), ab_odd = vtrn2q_f32(a, b), cd_odd = vtrn2q_f32(c, d);
    store(to, vcombine_f32(vget_low_f32(ab), vget_low_f32(cd)));
    store(to + to_stride, vcombine_f32(vget_low_f32(ab_odd), vget_low_f32(cd_odd)));
    store(to + 2 * to_stride, vcombine_f32(vget_high_f32(ab), vget_high_f32(cd)));
    store(to + 3 * to_stride, vcombine_f32(vget_high_f32(ab_odd), vget_high_f32(cd_odd)));
  }

 private:
  static int32x4_t lane_numbers() {
    const int32_t numbers[kLanes] = {0, 1, 2, 3};
    return vld1q_s32(numbers);
  }
  static size_t count(Mask mask) { return vaddvq_u32(vshrq_n_u32(mask, 31)); }
  static F power_of_two(int32x4_t n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
  static F widen(uint16x4_t x) { return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(x), 16)); }
  // Rounds to nearest, ties to even; a NaN stays a NaN.
  static uint16x4_t narrow(F x) {
    const auto bits = vreinterpretq_u32_f32(x);
    const auto odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const auto rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, vdupq_n_u32(0x7fc00000)), 16);
  }
};

}  // namespace
}  // namespace attn::cpu
