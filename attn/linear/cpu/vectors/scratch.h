// LinearScratch: the buffers that linear attention's vector kernels use for one chunk of positions.
#pragma once

#include "attn/cpu/scratch.h"
#include "attn/linear/cpu/kernels.h"

namespace attn::cpu {
namespace {

// Rows of q and k are padded with zeros to `dims` numbers, features to `features` and rows of v to `values`. A feature map of
// whole rows reads and writes up to kPadding numbers beyond a row. `widest` is the largest padded row of q, φ or v.
struct LinearScratch {
  int64_t dims, features, values;

  float *q, *k;                      // [16][dims]: the rows, if the feature map is of whole rows
  float *phi, *kappa;                // [16][features]: φ(q) and φ(k)
  float *v, *g;                      // [16][values]: rows of v, and g′ = grad_output / normalizer
  float* left;                       // [widest][16]: the transposed factor of a product, so that the 16 positions are lanes
  float* scores;                     // [16][16]
  float* products;                   // [16][widest] or [widest][16]: intermediate products, such as gradients of features
  float* lanes;                      // [16]: a number for each position: its normalizer or 1/normalizer
  float* grad_normalizer;            // [16]: δ
  float* row;                        // [dims]: one row's gradient
  float* partial;                    // [16][widest]: sums over a part of the rows of a state, or products
  float *query_scales, *key_scales;  // [16], with scales
  float* state_scales;               // [1 + 16], with scales: that of the state before the chunk, and after each of its positions
  float* factors;                    // [16], with scales: see LinearScales::set_factors()

  // Cuts the buffers for these parameters.
  LinearScratch(const LinearHeadParams& p, ScratchCutter& cut)
      : dims(padded(p.head_dim) + (is_entrywise(p.map) ? 0 : kPadding)),
        features(padded(p.feature_count)),
        values(padded(p.value_dim)) {
    const int64_t widest = max_of(padded(p.head_dim), max_of(features, values));
    q = cut.take(kChunkRows * dims);
    k = cut.take(kChunkRows * dims);
    phi = cut.take(kChunkRows * features + kPadding);
    kappa = cut.take(kChunkRows * features + kPadding);
    v = cut.take(kChunkRows * values);
    g = cut.take(kChunkRows * values);
    left = cut.take(kChunkRows * widest);
    scores = cut.take(kChunkRows * kChunkRows);
    products = cut.take(kChunkRows * widest);
    lanes = cut.take(kChunkRows);
    grad_normalizer = cut.take(kChunkRows);
    row = cut.take(dims);
    partial = cut.take(kChunkRows * widest);
    const int64_t scales = has_scales(p.update) ? kChunkRows : 0;
    query_scales = cut.take(scales);
    key_scales = cut.take(scales);
    state_scales = cut.take(scales + (scales > 0 ? 1 : 0));
    factors = cut.take(scales);
  }

  // How many numbers the buffers have.
  static int64_t size(const LinearHeadParams& p) {
    ScratchCutter cut;
    const LinearScratch counted(p, cut);
    return cut.taken();
  }

 private:
  static int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
};

}  // namespace
}  // namespace attn::cpu
