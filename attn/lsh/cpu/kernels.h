// The interface of LSH attention's CPU kernels: what each instruction set provides for one (batch entry, head), and what
// attn/lsh/cpu/implementation.cpp puts together. LSH attention is defined in attn/lsh/lsh_attention.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "attn/cpu/rows.h"
#include "attn/element_type.h"
#include "attn/lsh/definition.h"

namespace attn::cpu {

// One (batch entry, head): R rounds, N positions, chunks of m places, C = ⌈N/m⌉ chunks a round. Arrays [R,…] are contiguous.
// Numbers whose type is not given are in the accumulator dtype: float32, or float64 for float64 elements.
struct LshHeadParams {
  int64_t length, dim, value_dim, rounds, chunk, chunks;  // N, D, M, R, m, C
  int64_t visible_keys;                                   // positions from here on are hidden
  bool causal, trax;
  Rows qk, v, output, grad_output, grad_qk, grad_v;
  const int64_t* order;  // [R,N]: positions in the order of (bucket, position), hidden ones last
  double* log_sum_exp;   // [R,N] by position
  void* sums;            // [N, padded M]: the output of the rounds so far, where there are several
  double* merged;        // [N,2]: of the rounds so far the largest log-sum-exp, and Σ exp(log-sum-exp − largest)
  const void* shares;    // backward: [R,N] by position, the share of the round in the output
};

// Sums of gradients, with padded rows: of x as a query [N,D], of the key made from x [N,D], and of v [N,M].
struct LshGradients {
  void *query, *key, *value;
};

// A bucket is argmax [y; −y] of y = rotation · x, the first of equals. With second_half columns more it is that of the first_half
// columns, plus 2·first_half times that of the others. Buckets are always those that float64 gives.
struct LshRotations {
  const double* exact;   // [R·columns, D]
  const float* rounded;  // the same in float32, and three rows more
  int64_t first_half, second_half;
  float longest;  // the length of the longest column
};

// The kernels of one instruction set for one element type.
struct LshKernels {
  const char* name;                               // as in records: "avx512"
  int64_t (*scratch_size)(const LshHeadParams&);  // in numbers of the accumulator dtype
  // Writes the buckets of positions begin … end-1 in each round to buckets [R,N].
  void (*hash)(const LshHeadParams&, int64_t begin, int64_t end, const LshRotations&, int32_t* buckets, void* scratch);
  // Computes chunks first … last-1 of a round: writes log_sum_exp and, where there is one round, the output, otherwise sums.
  void (*forward)(const LshHeadParams&, int64_t round, int64_t first, int64_t last, void* scratch);
  // Writes rows begin … end-1 of sums to the output.
  void (*store_sums)(const LshHeadParams&, int64_t begin, int64_t end);
  // Adds the gradients of chunks first … last-1, which are counted over all rounds, to the sums.
  void (*backward)(const LshHeadParams&, int64_t first, int64_t last, const LshGradients&, void* scratch);
  // Writes rows begin … end-1 of grad_qk and grad_v, from the sums, which it changes.
  void (*store_gradients)(const LshHeadParams&, int64_t begin, int64_t end, const LshGradients&);
};

namespace {  // a copy for each instruction set, see simd.h

// The chunk that a chunk looks back to, or −1. Chunks are counted over all rounds.
inline int64_t chunk_before(const LshHeadParams& p, int64_t chunk) {
  const int64_t all = p.rounds * p.chunks;
  if (p.trax) return all == 1 ? -1 : (chunk + all - 1) % all;
  return chunk % p.chunks == 0 ? -1 : chunk - 1;
}

// How a new round is merged with those before it: their rows are multiplied by `previous`, its own by `share`. Sums of
// exponentials are relative to the largest exponent, because the own position's −1e5 leaves a log-sum-exp no digits.
struct RoundShares {
  double previous, share;

  // `merged`: see LshHeadParams; it takes in the round.
  static RoundShares join(double* merged, bool first, double log_sum_exp) {
    const double before = first ? -INFINITY : merged[0], sum = first ? 0 : merged[1];
    if (std::isnan(before) || std::isnan(log_sum_exp)) {
      merged[0] = merged[1] = NAN;
      return {NAN, NAN};
    }
    const double largest = before > log_sum_exp ? before : log_sum_exp;
    merged[0] = largest, merged[1] = sum;
    if (largest == -INFINITY) return {0, 0};
    const double previous = sum * std::exp(before - largest), joined = std::exp(log_sum_exp - largest);
    merged[1] = previous + joined;
    return {previous / merged[1], joined / merged[1]};
  }
};

}  // namespace

// The vector kernels, for float32 and bfloat16. Null for other types and where this build has none.
#ifdef __x86_64__
const LshKernels* lsh_kernels_avx512(ElementType element);
const LshKernels* lsh_kernels_avx2(ElementType element);
#else
inline const LshKernels* lsh_kernels_avx512(ElementType) { return nullptr; }
inline const LshKernels* lsh_kernels_avx2(ElementType) { return nullptr; }
#endif
// The portable kernels, for float32, bfloat16 and float64. Null for float16.
const LshKernels* lsh_kernels_portable(ElementType element);

}  // namespace attn::cpu
