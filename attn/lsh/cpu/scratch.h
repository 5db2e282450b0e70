// The buffers that LSH attention's vector kernels use for one chunk.
#pragma once

#include "attn/cpu/scratch.h"
#include "attn/lsh/cpu/kernels.h"

namespace attn::cpu {
namespace {

constexpr int64_t kMaxQueries = 64;  // the maximum number of queries that are processed together

// Rows are padded with zeros to `dim` and `values` numbers. The keys are those of a chunk and of the chunk before it, up to
// 2·chunk rows.
struct LshScratch {
  int64_t dim, values, chunk;
  int64_t queries;  // how many queries are processed together: kMaxQueries, or fewer for short chunks

  float* x;                                    // [64][dim]: queries
  float* x_transposed;                         // [dim][64]
  float* keys;                                 // [2·chunk][dim]: x · key_scale / √D
  float* v;                                    // [2·chunk][values]: values
  float* weights;                              // [2·chunk][queries]: logits, then weights
  float* products;                             // [2·chunk][queries], backward only: g·v, then gradients of logits
  float* g;                                    // [64][values], backward only: rows of grad_output
  float* g_transposed;                         // [values][64]
  float* out;                                  // [64][dim or values]: output rows, or gradients of x as a query
  float *grad_keys, *grad_v;                   // [2·chunk][dim] and [2·chunk][values], backward only
  float *largest, *sum;                        // [64]: the largest logit of each query, and the sum of its weights
  float *factors, *deltas;                     // [64], backward: see LshBackward; hash: rounding bounds in `factors`
  int32_t *query_positions, *key_positions;    // [64] and [2·chunk]; −1 in rows without a position
  int32_t *query_not_finite, *key_not_finite;  // the same: 1 if an entry of the row is not finite, else 0

  // Divides the memory of `cut` into the buffers for these parameters.
  LshScratch(const LshHeadParams& p, ScratchCutter& cut)
      : dim(padded(p.dim)),
        values(padded(p.value_dim)),
        chunk(padded(p.chunk)),
        queries(chunk < kMaxQueries ? chunk : int64_t{kMaxQueries}) {
    const auto integers = [&](int64_t size) { return reinterpret_cast<int32_t*>(cut.take(size)); };
    x = cut.take(kMaxQueries * dim);
    x_transposed = cut.take(kMaxQueries * dim);
    keys = cut.take(2 * chunk * dim);
    v = cut.take(2 * chunk * values);
    weights = cut.take(2 * chunk * kMaxQueries);
    products = cut.take(2 * chunk * kMaxQueries);
    g = cut.take(kMaxQueries * values);
    g_transposed = cut.take(kMaxQueries * values);
    out = cut.take(kMaxQueries * (dim > values ? dim : values));
    grad_keys = cut.take(2 * chunk * dim);
    grad_v = cut.take(2 * chunk * values);
    largest = cut.take(kMaxQueries);
    sum = cut.take(kMaxQueries);
    factors = cut.take(kMaxQueries);
    deltas = cut.take(kMaxQueries);
    query_positions = integers(kMaxQueries);
    key_positions = integers(2 * chunk);
    query_not_finite = integers(kMaxQueries);
    key_not_finite = integers(2 * chunk);
  }

  // The size of all buffers, in numbers.
  static int64_t size(const LshHeadParams& p) {
    ScratchCutter cut;
    const LshScratch counted(p, cut);
    return cut.taken();
  }
};

}  // namespace
}  // namespace attn::cpu
