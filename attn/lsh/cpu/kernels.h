// LSH attention on the CPU: what each instruction set provides, and lsh.cpp puts together. Definitions as in
// attn/lsh/lsh_attention.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "attn/linear/cpu/kernels.h"  // Rows, Element, padded()

namespace attn::kernels {

// One (batch entry, head). R rounds, N positions, chunks of m places, C = ⌈N/m⌉ of them a round; [R,…] arrays are contiguous.
struct LshHead {
  int64_t length, dim, value_dim, rounds, chunk, chunks;
  int64_t visible_keys;  // positions from here on are hidden
  bool causal, trax;
  Rows qk, v, output, gradient, qk_gradient, v_gradient;
  const int64_t* order;  // [R,N]: positions in the order of (bucket, position), hidden ones last
  double* log_sum_exp;   // [R,N] by position
  void* sums;            // [N, padded M] of the sums' type: the output of the rounds so far, while there are more
  double* merged;        // [N,2]: their largest log-sum-exp, and Σ exp(log-sum-exp − largest)
  const void* shares;    // backward: [R,N] of the sums' type, by position: what of the output comes from the round
};

// Where backward adds up, of the sums' type, rows padded: gradients of x as a query [N,D], of the key made from x [N,D], and
// of v [N,M].
struct LshGradients {
  void *query, *key, *value;
};

// A bucket is argmax [y; −y], y = rotation · x, the first of equals; or, with factors d and e, that of the first d/2 columns plus
// d times that of the others. Always the bucket that float64 gives.
struct LshRotations {
  const double* exact;   // [R·columns, D]
  const float* rounded;  // the same, and three rows more
  int64_t first_half, second_half;
  float longest;  // of the columns' lengths
};

struct LshKernels {
  const char* name;
  int64_t (*scratch_size)(const LshHead&);  // numbers of the sums' type
  // The bucket of positions begin … end-1 in each round, into buckets [R,N].
  void (*hash)(const LshHead&, int64_t begin, int64_t end, const LshRotations&, int32_t* buckets, void* scratch);
  // Chunks first … last-1 of a round: log_sum_exp, and output, or sums while there are more rounds.
  void (*forward)(const LshHead&, int64_t round, int64_t first, int64_t last, void* scratch);
  // Rows begin … end-1 of sums into output.
  void (*store_sums)(const LshHead&, int64_t begin, int64_t end);
  // Chunks first … last-1 of all R·C, one round after the other.
  void (*backward)(const LshHead&, int64_t first, int64_t last, const LshGradients&, void* scratch);
  // Rows begin … end-1 of the gradients.
  void (*store_gradients)(const LshHead&, int64_t begin, int64_t end, const LshGradients&);
};

namespace {  // a copy for each instruction set, see simd.h

// The chunk that a chunk (of all R·C) looks back to, or −1.
inline int64_t chunk_before(const LshHead& h, int64_t chunk) {
  const int64_t all = h.rounds * h.chunks;
  if (h.trax) return all == 1 ? -1 : (chunk + all - 1) % all;
  return chunk % h.chunks == 0 ? -1 : chunk - 1;
}

// A round joins those before it: their rows are worth `kept` of what they were, its own `share`. Sums relative to the largest
// are exact where the own position's −1e5 leaves a log-sum-exp no digits.
struct RoundShares {
  double kept, share;

  static RoundShares join(double* merged, bool first, double log_sum_exp) {
    const double before = first ? -INFINITY : merged[0], sum = first ? 0 : merged[1];
    if (std::isnan(before) || std::isnan(log_sum_exp)) {
      merged[0] = merged[1] = NAN;
      return {NAN, NAN};
    }
    const double largest = before > log_sum_exp ? before : log_sum_exp;
    merged[0] = largest, merged[1] = sum;
    if (largest == -INFINITY) return {0, 0};
    const double kept = sum * std::exp(before - largest), joined = std::exp(log_sum_exp - largest);
    merged[1] = kept + joined;
    return {kept / merged[1], joined / merged[1]};
  }
};

}  // namespace

#ifdef __x86_64__
const LshKernels* lsh_kernels_avx512(Element element);
const LshKernels* lsh_kernels_avx2(Element element);
#else
inline const LshKernels* lsh_kernels_avx512(Element) { return nullptr; }
inline const LshKernels* lsh_kernels_avx2(Element) { return nullptr; }
#endif
// The plain version, for every type.
const LshKernels* lsh_kernels_portable(Element element);

constexpr double kOwnPositionPenalty = 1e5;  // trax: any other visible key outweighs the own position
constexpr double kMeanSquareEpsilon = 1e-6;  // trax: below the root of the keys' mean square

}  // namespace attn::kernels
