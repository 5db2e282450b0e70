// The interface of linear attention's CPU kernels: what each instruction set provides, for one (batch entry, head) and a range of
// its positions, and what attn/linear/cpu/implementation.cpp puts together.
//
// With φ = φ(q), κ = φ(k), g′ = grad_output / normalizer and δ the gradient of the normalizer, the states are
//   S = Σ κ_j v_jᵀ [F,M]   Z = Σ κ_j [F]            over the keys before a range, which the forward pass reads
//   T = Sᵀ [M,F]           Z                        the same, as the gradient of φ reads it
//   R = Σ φ_i g′_iᵀ [F,M]  Y = Σ δ_i φ_i [F]        over the queries after a range, which the gradients of κ and v read
// A map with scales has φ = e^c·φ̃, where e^c may be beyond the range of float32. The matrix and the vector of a state are then
// relative to e^scale. The state's scale, a number that follows the vector, is at least that of every term, and kNoScale in an
// empty state. A term of S, T and Z has its key's scale c; a term of R and Y has minus the scale of the state that its query saw.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attn/cpu/rows.h"
#include "attn/element_type.h"
#include "attn/linear/feature_map_kind.h"

namespace attn::cpu {

constexpr int kChunk = 16;  // positions that the kernels process together

// Whether the kernels compute this feature map.
constexpr bool computes_feature_map(FeatureMapKind map) { return map != FeatureMapKind::rff; }

// One (batch entry, head). Numbers that are not in Rows are in the accumulator dtype: float32, or float64 for float64 elements.
struct LinearHeadParams {
  FeatureMapKind map;
  int64_t head_dim, feature_count, value_dim;  // D, F, M
  int64_t visible_keys;                        // keys from this position on are hidden
  float epsilon;
  Rows q, k, v, output, grad_output, grad_q, grad_k, grad_v;
  // [N]: φ·Z + ε. With scales [N,2]: relative to the scales of query and state, and the state's scale.
  void* normalizer;
  void* grad_normalizer;              // [N]: δ
  const void* projection;             // for maps with directions, the directions over D^¼: [F, padded D]
  const void* projection_transposed;  // [D, padded F]
};

// How many numbers a state has: the matrix and the vector with padded rows, and the scale with room that keeps the next state
// aligned.
constexpr int64_t state_size(const LinearHeadParams& p) {
  return padded(p.feature_count) * (padded(p.value_dim) + 1) + (has_scales(p.map) ? kPadding : 0);
}

// The kernels of one instruction set for one element type. They work on the positions begin ≤ i < end. States and scratch are in
// the accumulator dtype; `scratch` has room for scratch_size() numbers.
struct LinearKernels {
  const char* name;  // as in records: "avx512"
  int64_t (*scratch_size)(const LinearHeadParams&);
  // Add keys to S and Z, or to T and Z.
  void (*add_keys)(const LinearHeadParams&, int64_t begin, int64_t end, void* s, void* z, void* scratch);
  void (*add_keys_transposed)(const LinearHeadParams&, int64_t begin, int64_t end, void* t, void* z, void* scratch);
  // The causal forward pass: writes outputs and normalizers, and adds the range's keys to S and Z.
  void (*forward)(const LinearHeadParams&, int64_t begin, int64_t end, void* s, void* z, void* scratch);
  // The forward pass of queries that see all keys in S and Z, which do not change.
  void (*read)(const LinearHeadParams&, int64_t begin, int64_t end, const void* s, const void* z, void* scratch);
  // Writes grad_q and δ. With the causal mask it also adds the range's keys to T and Z.
  void (*backward_queries)(const LinearHeadParams&, int64_t begin, int64_t end, bool causal, void* t, void* z, void* scratch);
  // Adds queries to R and Y.
  void (*add_queries)(const LinearHeadParams&, int64_t begin, int64_t end, void* r, void* y, void* scratch);
  // Writes grad_k and grad_v. With the causal mask it also adds the range's queries to R and Y, the last position first.
  void (*backward_keys)(const LinearHeadParams&, int64_t begin, int64_t end, bool causal, void* r, void* y, void* scratch);
  // One decoding step: adds row 0 of k and v to S [F,M] and Z [F], which have no padding here and whose scale follows Z, then
  // writes row 0 of the output.
  void (*step)(const LinearHeadParams&, void* s, void* z, void* scratch);
};

// The vector kernels, for float32 and bfloat16. Null for other types and where this build has none.
#ifdef __x86_64__
const LinearKernels* linear_kernels_avx512(ElementType element);
const LinearKernels* linear_kernels_avx2(ElementType element);
#else
inline const LinearKernels* linear_kernels_avx512(ElementType) { return nullptr; }
inline const LinearKernels* linear_kernels_avx2(ElementType) { return nullptr; }
#endif
// The portable kernels, for float32, bfloat16 and float64. Null for float16.
const LinearKernels* linear_kernels_portable(ElementType element);

}  // namespace attn::cpu
