// Avx512, Avx2 and Neon: vectors of float32 with the same interface, so that kernels are written once over a type V and compiled
// for each instruction set.
//
// Include this only from files that are compiled for one instruction set (attn/*/cpu/avx512.cpp and so on), and include nothing
// but kernels there: if several files compile the same inline function, the linker keeps only one copy, which might use
// instructions that the processor does not have. Kernels are in unnamed namespaces for the same reason.
#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

namespace attn::cpu {
namespace {

// bfloat16: the upper half of a float32.
struct BFloat16 {
  uint16_t bits;
};

// The polynomial for e^f, |f| ≤ ln 2 / 2, with a relative error of 5e-9 (minimax, found by Remez' algorithm), lowest degree
// first.
constexpr float kExpCoefficients[] = {1.0f, 1.0f, 0.49999994f, 0.166665196f, 0.0416683927f, 0.00836878084f, 0.00138144672f};
constexpr float kRounder = 12582912.0f;  // 1.5 · 2²³: adding and subtracting it rounds to an integer
constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
constexpr float kMinExp = -104.0f, kMaxExp = 89.0f;  // exp(x) is 0 below kMinExp and infinity above kMaxExp

// The table of exp_nonpositive(), which writes x as (n + i/kEntries)·ln 2 + f with whole n and 0 ≤ i < kEntries, so that |f| is
// at most ln 2 / 2 / kEntries and a polynomial of low degree is enough for e^f − 1. The lowest bits of x·log₂e + kRounder are
// those of n·kEntries + i. Shifted to the left by kShift, n is where a float32 has its exponent, and adding entry i, the bits of
// 2^(i/kEntries) less i << kShift, gives the bits of 2^(n + i/kEntries).
template <int kEntries>
struct ExpTable {
  static constexpr int kShift = kEntries == 32 ? 18 : 20;
  static constexpr float kRounder = 1.5f * float(1 << kShift);
  alignas(64) uint32_t entries[kEntries];

  constexpr ExpTable() : entries() {
    constexpr double kStep = kEntries == 32 ? 1.0218971486541166 : 1.0905077326652577;  // 2^(1/kEntries)
    double power = 1;
    for (int i = 0; i < kEntries; ++i, power *= kStep)
      entries[i] = __builtin_bit_cast(uint32_t, float(power)) - (uint32_t(i) << kShift);
  }
};
constexpr float kLn2 = 0.693147182f;           // 1.9e-9 more than ln 2
constexpr float kMinNormalExp = -87.3365402f;  // for a smaller x, e^x is below the normal range of float32

#ifdef __AVX512F__
// F is a vector of kLanes numbers, and a Mask selects lanes. all(x) has x in every lane.
struct Avx512 {
  using F = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;

  static F zero() { return _mm512_setzero_ps(); }
  static F all(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const BFloat16* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store(BFloat16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }

  static Mask first(int64_t n) { return Mask((1u << n) - 1); }  // 0 ≤ n ≤ 16
  static Mask from(int64_t n) { return Mask(0xffffu << n); }    // lanes n, n+1, …
  static F load(const float* p, Mask mask) { return _mm512_maskz_loadu_ps(mask, p); }
  static F load(const BFloat16* p, Mask mask) { return widen(_mm256_maskz_loadu_epi16(mask, p)); }
  static void store(float* p, F x, Mask mask) { _mm512_mask_storeu_ps(p, mask, x); }
  static void store(BFloat16* p, F x, Mask mask) { _mm256_mask_storeu_epi16(p, mask, narrow(x)); }
  static F keep(F x, Mask mask) { return _mm512_maskz_mov_ps(mask, x); }  // zero in the other lanes
  static F choose(Mask mask, F where_set, F otherwise) { return _mm512_mask_mov_ps(otherwise, mask, where_set); }
  static Mask greater(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  // The lanes where numbers[lane] ≥ bound, and where numbers[lane] = other.
  static Mask at_least(const int32_t* numbers, int32_t bound) {
    return _mm512_cmpge_epi32_mask(_mm512_loadu_si512(numbers), _mm512_set1_epi32(bound));
  }
  static Mask equal(const int32_t* numbers, int32_t other) {
    return _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(numbers), _mm512_set1_epi32(other));
  }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }  // b where either is NaN
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static float sum(F a) { return _mm512_reduce_add_ps(a); }
  // Stores factor times sum(a), sum(b), sum(c) and sum(d), faster than one by one.
  static void store_sums(float* to, F a, F b, F c, F d, float factor) {
    const F ab = add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const F cd = add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const F quarters = add(join(ab, cd, 0), join(ab, cd, 1));
    const auto halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps(quarters, 1));
    const auto sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
    _mm_storeu_ps(to, _mm_mul_ps(sums, _mm_set1_ps(factor)));
  }
  static float largest(F a) { return _mm512_reduce_max_ps(a); }

  static F exp(F x) {
    x = min(all(kMaxExp), max(all(kMinExp), x));
    const F n = sub(fma(x, all(kLog2E), all(kRounder)), all(kRounder));
    const F f = _mm512_fnmadd_ps(n, all(kLn2Low), _mm512_fnmadd_ps(n, all(kLn2High), x));
    F p = all(kExpCoefficients[6]);
    for (int i = 5; i >= 0; --i) p = fma(p, f, all(kExpCoefficients[i]));
    return _mm512_scalef_ps(p, n);
  }

  // e^x for x ≤ 0, to 1.8 + 0.045·|x| units in the last place. It is 0 where e^x is below the normal range of float32. exp() is
  // for any x, and takes more instructions.
  static F exp_nonpositive(F x) {
    using Table = ExpTable<32>;
    static constexpr Table table;
    const F t = fma(x, all(kLog2E), all(Table::kRounder));
    const F f = _mm512_fnmadd_ps(sub(t, all(Table::kRounder)), all(kLn2), x);
    const F less_one = mul(f, fma(f, all(0.49999997f), all(1.0000147f)));
    const auto bits = _mm512_castps_si512(t);
    const auto entry = _mm512_permutex2var_epi32(_mm512_load_si512(table.entries), bits, _mm512_load_si512(table.entries + 16));
    const F power = _mm512_castsi512_ps(_mm512_add_epi32(entry, _mm512_slli_epi32(bits, Table::kShift)));
    return _mm512_maskz_fmadd_ps(_mm512_cmp_ps_mask(x, all(kMinNormalExp), _CMP_NLT_UQ), power, less_one, power);
  }

  // to[c·to_stride + r] = from[r·from_stride + c] for r, c < 16.
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    F r[16], t[16];
    // Each vector is loaded as the quarters of four rows, so that no 128-bit shuffles are needed.
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
#pragma GCC unroll 4
      for (int64_t c = 0; c < 4; ++c) {
        const float* p = from + i * from_stride + 4 * c;
        F x = _mm512_castps128_ps512(_mm_loadu_ps(p));
        x = _mm512_insertf32x4(x, _mm_loadu_ps(p + 4 * from_stride), 1);
        x = _mm512_insertf32x4(x, _mm_loadu_ps(p + 8 * from_stride), 2);
        r[4 * c + i] = _mm512_insertf32x4(x, _mm_loadu_ps(p + 12 * from_stride), 3);
      }
    }
#pragma GCC unroll 4
    for (int64_t c = 0; c < 4; ++c) {
      const F a = r[4 * c], b = r[4 * c + 1], d = r[4 * c + 2], e = r[4 * c + 3];
      t[0] = _mm512_unpacklo_ps(a, b);
      t[1] = _mm512_unpackhi_ps(a, b);
      t[2] = _mm512_unpacklo_ps(d, e);
      t[3] = _mm512_unpackhi_ps(d, e);
      float* p = to + 4 * c * to_stride;
      store(p, join(t[0], t[2], 0));
      store(p + to_stride, join(t[0], t[2], 1));
      store(p + 2 * to_stride, join(t[1], t[3], 0));
      store(p + 3 * to_stride, join(t[1], t[3], 1));
    }
  }

 private:
  static F join(F a, F b, int high) {
    const auto x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(x, y) : _mm512_unpacklo_pd(x, y));
  }
  static F widen(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
  // Rounds to nearest, ties to even; a NaN stays a NaN.
  static __m256i narrow(F x) {
    const auto bits = _mm512_castps_si512(x);
    const auto odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const auto rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const auto nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc00000)), 16));
  }
};
#endif

#ifdef __AVX2__
// The interface of Avx512. Masks of bfloat16 loads and stores must select the first lanes, as those of first() do.
struct Avx2 {
  using F = __m256;
  using Mask = __m256i;
  static constexpr int kLanes = 8;

  static F zero() { return _mm256_setzero_ps(); }
  static F all(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load(const BFloat16* p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void store(BFloat16* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x)); }

  static Mask first(int64_t n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(n)), lane_numbers()); }
  static Mask from(int64_t n) { return _mm256_cmpgt_epi32(lane_numbers(), _mm256_set1_epi32(int(n) - 1)); }
  static F load(const float* p, Mask mask) { return _mm256_maskload_ps(p, mask); }
  static F load(const BFloat16* p, Mask mask) {
    BFloat16 whole[kLanes] = {};
    std::memcpy(whole, p, sizeof(BFloat16) * size_t(count(mask)));
    return load(whole);
  }
  static void store(float* p, F x, Mask mask) { _mm256_maskstore_ps(p, mask, x); }
  static void store(BFloat16* p, F x, Mask mask) {
    BFloat16 whole[kLanes];
    store(whole, x);
    std::memcpy(p, whole, sizeof(BFloat16) * size_t(count(mask)));
  }
  static F keep(F x, Mask mask) { return _mm256_and_ps(x, _mm256_castsi256_ps(mask)); }
  static F choose(Mask mask, F where_set, F otherwise) {
    return _mm256_blendv_ps(otherwise, where_set, _mm256_castsi256_ps(mask));
  }
  static Mask greater(F a, F b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
  // The lanes where numbers[lane] ≥ bound, and where numbers[lane] = other.
  static Mask at_least(const int32_t* numbers, int32_t bound) {
    return _mm256_cmpgt_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers)), _mm256_set1_epi32(bound - 1));
  }
  static Mask equal(const int32_t* numbers, int32_t other) {
    return _mm256_cmpeq_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers)), _mm256_set1_epi32(other));
  }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }  // b where either is NaN
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static float sum(F a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static void store_sums(float* to, F a, F b, F c, F d, float factor) {
    const F quarters = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    const auto sums = _mm_add_ps(_mm256_castps256_ps128(quarters), _mm256_extractf128_ps(quarters, 1));
    _mm_storeu_ps(to, _mm_mul_ps(sums, _mm_set1_ps(factor)));
  }
  static float largest(F a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }

  static F exp(F x) {
    x = min(all(kMaxExp), max(all(kMinExp), x));
    const F n = sub(fma(x, all(kLog2E), all(kRounder)), all(kRounder));
    const F f = _mm256_fnmadd_ps(n, all(kLn2Low), _mm256_fnmadd_ps(n, all(kLn2High), x));
    F p = all(kExpCoefficients[6]);
    for (int i = 5; i >= 0; --i) p = fma(p, f, all(kExpCoefficients[i]));
    // 2ⁿ is computed as two factors, because n may be beyond the range of the exponent of one float32.
    const auto whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return mul(mul(p, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
  }

  static F exp_nonpositive(F x) {
    using Table = ExpTable<8>;
    static constexpr Table table;
    const F t = fma(x, all(kLog2E), all(Table::kRounder));
    const F f = _mm256_fnmadd_ps(sub(t, all(Table::kRounder)), all(kLn2), x);
    const F less_one = mul(f, fma(f, fma(f, all(0.16664296f), all(0.50006485f)), all(1)));
    const auto bits = _mm256_castps_si256(t);
    const auto entry = _mm256_permutevar8x32_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(table.entries)), bits);
    const F power = _mm256_castsi256_ps(_mm256_add_epi32(entry, _mm256_slli_epi32(bits, Table::kShift)));
    return _mm256_and_ps(_mm256_cmp_ps(x, all(kMinNormalExp), _CMP_NLT_UQ), fma(power, less_one, power));
  }

  // to[c·to_stride + r] = from[r·from_stride + c] for r, c < 8.
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    F r[8], t[8];
#pragma GCC unroll 8
    for (int64_t i = 0; i < 8; ++i) r[i] = load(from + i * from_stride);
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
      t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int64_t i = 0; i < 2; ++i) {
      r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
      r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
      r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
      r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      store(to + i * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
      store(to + (i + 4) * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
  }

 private:
  static __m256i lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static int count(Mask mask) { return __builtin_popcount(unsigned(_mm256_movemask_ps(_mm256_castsi256_ps(mask)))); }
  static F power_of_two(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static F widen(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
  static __m128i narrow(F x) {
    const auto bits = _mm256_castps_si256(x);
    const auto odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const auto rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const auto nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const auto high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
};
#endif

}  // namespace
}  // namespace attn::cpu

#ifdef __aarch64__
#include "attn/cpu/neon_vectors.h"
#endif

namespace attn::cpu {
namespace {

// Σ_c a[c] · b[c] for c < width, a multiple of V::kLanes.
template <class V>
inline float dot(const float* a, const float* b, int64_t width) {
  auto sum = V::zero();
  for (int64_t c = 0; c < width; c += V::kLanes) sum = V::fma(V::load(a + c), V::load(b + c), sum);
  return V::sum(sum);
}

}  // namespace
}  // namespace attn::cpu
