// RecurrentScratch: the buffers that recurrent attention's vector kernels use for one chunk of positions.
#pragma once

#include "attn/cpu/scratch.h"
#include "attn/recurrent/cpu/kernels.h"

namespace attn::cpu {
namespace {

// Rows of q and k are padded with zeros to `keys` numbers, and rows of v to `values`. Matrices [16][16] of pairs hold that of
// query i and key j at [j][i]. `e` stands for e^(sum of the decays), from the beginning of the chunk to a position or between two
// of them.
struct RecurrentScratch {
  int64_t keys, values;

  float *q, *k, *v;                    // [16][keys], [16][keys], [16][values]: rows as loaded, q and k normalized if asked for
  float *left_q, *left_k, *left_read;  // [keys][16]: transposed rows, so that the 16 positions are lanes; multiplied by factors
  float* u;                            // [16][values]: what each position adds to the state, k uᵀ
  float *pairs_qk, *pairs_kk;          // [16][16]: q_i·k_j e and k_i·k_j e
  float *decays, *factors;             // [16][16]: e, and −β_i k_i·k_j e, the factors of the system of equations for u
  float *g, *sums, *e, *e_rest,
      *beta;  // [16]: decays, their sums since the beginning of the chunk, e of these, and e from a position to the end
  float *scales, *read_factors, *inverse_q, *inverse_k;  // [16]: factors of outputs, −β e, and 1/length of q and k
  float* products;                                       // [16][widest] or [widest][16]: partial sums of products

  // For a decay of each feature only, see attn/recurrent/cpu/feature_decays.h; null otherwise.
  float* feature_g;                    // [16][keys]: the decays as loaded, or e^g
  float *e_read, *e_written;           // [16][keys]: what rows of q and k are multiplied by where they read and write the state
  float *e_edge, *e_kept;              // [keys]
  float *read_q, *read_k, *written_k;  // [16][keys]: q · e_read, k · e_read and k · e_written
  float *moving_q, *moving_k;          // [16][keys]: rows that decay from position to position

  // For the backward pass only; null otherwise.
  float *grad_output, *grad_target;       // [16][values]: of output · scale, and of u or, by the delta rule, β (v − Sᵀk)
  float* left_v;                          // [values][16]
  float *grad_q, *grad_k, *grad_written;  // [16][keys]: of q, of k where the state is read, and of k where it is written
  float *grad_qk, *grad_kk;               // [16][16]: of pairs of q and k, and of pairs of k
  float* states;                          // [kCheckpoint / 16][state]: before each chunk between two checkpoints

  // For both only; null otherwise.
  float* grad_stored;  // [16][keys]: of k where it is written, through the state after the chunk
  float* grad_kept;    // [keys]: of e_kept, times e_kept
  float* grad_itself;  // [16]: of pairs of q and k of the same position

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
