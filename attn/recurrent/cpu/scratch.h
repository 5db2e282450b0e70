// RecurrentScratch: the buffers that recurrent attention's vector kernels use for one chunk of positions.
#pragma once

#include "attn/cpu/scratch.h"
#include "attn/recurrent/cpu/kernels.h"

namespace attn::cpu {
namespace {

// Rows of q and k are padded with zeros to `keys` numbers, and rows of v to `values`. Matrices [16][16] hold the number of query
// i and key j at [j][i]. In the comments, `e` stands for e^(sum of g), from the beginning of the chunk to a position or from one
// position to another.
struct RecurrentScratch {
  int64_t keys, values;

  float *q, *k, *v;                    // [16][keys], [16][keys], [16][values]: rows; with `normalizes`, q and k are normalized
  float *left_q, *left_k, *left_read;  // [keys][16]: transposed rows, so that the 16 positions are lanes; multiplied by factors
  float* u;                            // [16][values]: what each position adds to the state, k uᵀ
  float *pairs_qk, *pairs_kk;          // [16][16]: q_i·k_j e and k_i·k_j e
  float *decays, *factors;             // [16][16]: e, and −β_i k_i·k_j e, the factors of the system of equations for u
  // [16]: g, its sums since the beginning of the chunk or segment, e of these sums, e from each position to the end, and β
  float *g, *sums, *e, *e_rest, *beta;
  float *scales, *read_factors, *inverse_q, *inverse_k;  // [16]: factors of outputs, −β e, and 1/length of q and k
  float* products;  // [16][widest] or [widest][16] of the wider of `keys` and `values`: partial sums of products

  // With feature_gates only, see attn/recurrent/cpu/feature_decays.h; otherwise null.
  float* feature_g;                    // [16][keys]: g, or e^g in chunks that are not moderate
  float *e_read, *e_written;           // [16][keys]: the factors of q and k where the state is read, and of k where it is written
  float *e_edge, *e_kept;              // [keys]: see FeatureDecays::set()
  float *read_q, *read_k, *written_k;  // [16][keys]: q · e_read, k · e_read and k · e_written
  float *moving_q, *moving_k;          // [16][keys]: rows that decay from position to position

  // For the backward pass only; otherwise null. The gradients of:
  float *grad_output, *grad_target;       // [16][values]: output, times scale; and u or, with the delta rule, β (v − Sᵀk)
  float *grad_q, *grad_k, *grad_written;  // [16][keys]: q; k where the state is read; and k where it is written
  float *grad_qk, *grad_kk;               // [16][16]: the decayed scores of q and k, and those of k and k
  // and
  float* left_v;  // [values][16]: transposed rows of v or of its gradients
  float* states;  // [kCheckpoint / 16][state]: the states before each chunk between two checkpoints

  // For the backward pass with feature_gates only; otherwise null. The gradients of:
  float* grad_stored;  // [16][keys]: k where it is written, through the state after the chunk
  float* grad_kept;    // [keys]: e_kept, times e_kept
  float* grad_itself;  // [16]: the scores of q and k of the same position

  RecurrentScratch(const RecurrentHeadParams& p, bool backward, ScratchCutter& cut)
      : keys(padded(p.key_dim)), values(padded(p.value_dim)) {
    const int64_t widest = keys > values ? keys : values;
    const auto take = [&](int64_t size, auto*&... buffers) { ((buffers = cut.take(size)), ...); };
    take(kChunkRows * keys, q, k);
    take(kChunkRows * values, v, u);
    take(kChunkRows * keys, left_q, left_k, left_read);
    take(kChunkRows * kChunkRows, pairs_qk, pairs_kk, decays, factors);
    take(kChunkRows, g, sums, e, e_rest, beta, scales, read_factors, inverse_q, inverse_k);
    products = cut.take(kChunkRows * widest);
    const int64_t features = p.feature_gates ? keys : 0;
    take(kChunkRows * features, feature_g, e_read, e_written, read_q, read_k, written_k, moving_q, moving_k);
    take(features, e_edge, e_kept);
    const int64_t rows = backward ? kChunkRows : 0;
    take(rows * values, grad_output, grad_target, left_v);
    take(rows * keys, grad_q, grad_k, grad_written);
    take(backward ? kChunkRows * features : 0, grad_stored);
    take(backward ? features : 0, grad_kept);
    take(backward && features > 0 ? kChunkRows : 0, grad_itself);
    take(rows * kChunkRows, grad_qk, grad_kk);
    states = cut.take(rows > 0 ? kCheckpoint / kChunkRows * state_size(p) : 0);
  }

  // How many numbers the buffers have.
  static int64_t size(const RecurrentHeadParams& p, bool backward) {
    ScratchCutter cut;
    const RecurrentScratch counted(p, backward, cut);
    return cut.taken();
  }
};

}  // namespace
}  // namespace attn::cpu
