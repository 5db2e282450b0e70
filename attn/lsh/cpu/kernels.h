// The interface of LSH attention's CPU kernels: the functions that each instruction set provides for one (batch entry, head).
// attn/lsh/cpu/implementation.cpp calls them. attn/lsh/lsh_attention.h defines LSH attention.
#pragma once

#include <cmath>
#include <cstdint>

#include "attn/cpu/rows.h"
#include "attn/element_type.h"
#include "attn/lsh/definition.h"

namespace attn::cpu {

// The data of one (batch entry, head): R rounds, N positions, chunks of m places, C = ⌈N/m⌉ chunks per round. Arrays [R,…] are
// contiguous. A void* points to numbers in the accumulator dtype: float32, or float64 for float64 elements.
struct LshHeadParams {
  int64_t length, dim, value_dim, rounds, chunk, chunks;  // N, D, M, R, m, C
  int64_t visible_keys;                                   // positions from here on are hidden
  bool causal, trax;
  Rows qk, v, output, grad_output, grad_qk, grad_v;
  const int64_t* order;  // [R,N]: the positions sorted by (bucket, position), hidden ones last
  double* log_sum_exp;   // [R,N] by position: of each query's logits in each round
  void* partial_output;  // [N, padded M]: the output of the rounds so far, used if there are several rounds
  double* merged;        // [N,2]: the largest log-sum-exp of the rounds so far, and Σ exp(log-sum-exp − largest); trax only
  const void* shares;    // [R,N] by position, backward pass: the share of each round in a row's output
};

// Accumulators of gradients, with padded rows: with respect to x as a query [N,D], to the key made from x [N,D], and to v [N,M].
struct LshGradients {
  void *query, *key, *value;
};

// A bucket is argmax [y; −y] of y = rotation · x, the first index where several entries are equal. If second_half is not 0, a
// bucket is the argmax over the first_half columns plus 2·first_half times the argmax over the second_half columns after them.
// Buckets are always those that float64 gives.
struct LshRotations {
  const double* exact;   // [R·columns, D]
  const float* rounded;  // the same in float32, followed by three rows of zeros that `product` may read
  int64_t first_half, second_half;
  float max_norm;  // the largest Euclidean norm of a column
};

// The kernels of one instruction set for one element type.
struct LshKernels {
  const char* name;                               // in options and records, such as "avx512"
  int64_t (*scratch_size)(const LshHeadParams&);  // of `scratch`, in numbers of the accumulator dtype
  // Writes the buckets of positions begin … end-1 in each round to buckets [R,N].
  void (*hash)(const LshHeadParams&, int64_t begin, int64_t end, const LshRotations&, int32_t* buckets, void* scratch);
  // Computes chunks first … last-1 of a round. Writes log_sum_exp, and the output if there is one round, otherwise
  // partial_output.
  void (*forward)(const LshHeadParams&, int64_t round, int64_t first, int64_t last, void* scratch);
  // Writes rows begin … end-1 of partial_output to the output.
  void (*store_partial_output)(const LshHeadParams&, int64_t begin, int64_t end);
  // Adds the gradients of chunks first … last-1 to the accumulators. Chunks are counted over all rounds.
  void (*backward)(const LshHeadParams&, int64_t first, int64_t last, const LshGradients&, void* scratch);
  // Writes rows begin … end-1 of grad_qk and grad_v from the accumulators, whose contents it may overwrite.
  void (*store_gradients)(const LshHeadParams&, int64_t begin, int64_t end, const LshGradients&);
};

namespace {  // a copy for each instruction set, see simd.h

// The chunk that a chunk looks back to, or −1. Chunks are counted over all rounds.
inline int64_t chunk_before(const LshHeadParams& p, int64_t chunk) {
  const int64_t all = p.rounds * p.chunks;
  if (p.trax) return all == 1 ? -1 : (chunk + all - 1) % all;
  return chunk % p.chunks == 0 ? -1 : chunk - 1;
}

// The first argmax of [y; −y] in float64, where y = columns [count, dim] · x and number(d) is entry d of x.
template <class Number>
inline int64_t exact_axis(const double* columns, int64_t count, int64_t dim, const Number& number) {
  double max = -INFINITY, min = INFINITY;
  int64_t at_max = 0, at_min = 0;
  for (int64_t c = 0; c < count; ++c) {
    double y = 0;
    for (int64_t d = 0; d < dim; ++d) y += double(number(d)) * columns[c * dim + d];
    // In ATen, the maximum and the minimum of numbers that include a NaN are that NaN, so lsh_buckets() gives this bucket.
    if (std::isnan(y)) return c + count;
    if (y > max) {
      max = y;
      at_max = c;
    }
    if (y < min) {
      min = y;
      at_min = c;
    }
  }
  return max >= -min ? at_max : at_min + count;
}

// The factors that merge a new round with the rounds before it: their output is multiplied by `previous`, and that of the new
// round by `share`. Sums of exponentials are stored relative to the largest exponent, because a log-sum-exp near −1e5, the
// penalty of the own position, has too few digits left.
struct RoundShares {
  double previous, share;

  // Merges a round's log-sum-exp into `merged`, two numbers of LshHeadParams::merged. `first` is true for the first round.
  static RoundShares join(double* merged, bool first, double log_sum_exp) {
    const double before = first ? -INFINITY : merged[0], sum = first ? 0 : merged[1];
    if (std::isnan(before) || std::isnan(log_sum_exp)) {
      merged[0] = merged[1] = NAN;
      return {NAN, NAN};
    }
    const double largest = before > log_sum_exp ? before : log_sum_exp;
    merged[0] = largest;
    merged[1] = sum;
    if (largest == -INFINITY) return {0, 0};
    const double previous = sum * std::exp(before - largest), added = std::exp(log_sum_exp - largest);
    merged[1] = previous + added;
    return {previous / merged[1], added / merged[1]};
  }
};

}  // namespace

// The vector kernels, for float32 and bfloat16. Null for other types. These functions are weak symbols: in a build without the
// kernels of an instruction set, the address of its function is null.
[[gnu::weak]] const LshKernels* lsh_kernels_avx512(ElementType element);
[[gnu::weak]] const LshKernels* lsh_kernels_avx2(ElementType element);
[[gnu::weak]] const LshKernels* lsh_kernels_neon(ElementType element);
// The portable kernels, for float32, bfloat16 and float64. Null for float16.
const LshKernels* lsh_kernels_portable(ElementType element);

}  // namespace attn::cpu
