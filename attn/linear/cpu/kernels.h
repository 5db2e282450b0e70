// The interface of linear attention's CPU kernels. Each instruction set provides them; each works on one (batch entry, head) and
// a range of its positions. attn/linear/cpu/implementation.cpp combines them into the passes over whole tensors.
//
// With φ = φ(q), κ = φ(k), g′ = grad_output / normalizer and δ the gradient of the normalizer, the states are the following sums.
// In the backward pass v and δ stand for v′ and δ′ of attn/linear/value_shift.h.
//   S = Σ κ_j v_jᵀ [F,M]   Z = Σ κ_j [F]            over the keys before a range, for the forward pass
//   T = Sᵀ [M,F]           Z                        the same sums, for the gradient of φ
//   R = Σ φ_i g′_iᵀ [F,M]  Y = Σ δ_i φ_i [F]        over the queries after a range, for the gradients of κ and v
// The features of a map with scales are e^c·φ̃, where e^c may be beyond the range of float32; c is called the scale of the row.
// The matrix and the vector of a state are then stored divided by e^scale. The scale of a state, a number that follows the
// vector, is at least the scale of every term of the sums, and kNoScale in an empty state. The scale of a term of S, T and Z is
// that of its key; the scale of a term of R and Y is minus the scale of the state that its query saw.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attn/cpu/rows.h"
#include "attn/element_type.h"
#include "attn/linear/update.h"

namespace attn::cpu {

// Whether the kernels compute this feature map.
constexpr bool computes_feature_map(FeatureMapKind map) { return map != FeatureMapKind::rff; }

// The parameters of one (batch entry, head). Rows have the tensors' element type; all other numbers are in the accumulator dtype:
// float64 for float64 elements, float32 for others.
struct LinearHeadParams {
  FeatureMapKind map;
  LinearUpdate update;
  int64_t head_dim, feature_count, value_dim;  // D, F, M
  int64_t visible_keys;                        // keys at this position and after it are hidden
  double epsilon;
  Rows q, k, v, output, grad_output, grad_q, grad_k, grad_v;
  // [N]: φ·Z + ε. With scales [N,2]: φ·Z + ε relative to the scales of query and state, and the state's scale.
  void* normalizer;
  void* grad_normalizer;    // [N]: δ
  const void* value_shift;  // [padded M]: is subtracted from rows of v (value_shift.h), with zeros as padding; null for none
  const void* projection;   // for maps with directions, the directions divided by D^¼: [F, padded D]
  const void* projection_transposed;  // the same numbers as [D, padded F]
};

// How many numbers a state has: the matrix and the vector with padded rows and, with scales, the scale, which is padded so that
// the next state is aligned.
constexpr int64_t state_size(const LinearHeadParams& p) {
  return padded(p.feature_count) * (padded(p.value_dim) + 1) + (has_scales(p.update) ? kPadding : 0);
}

// The kernels of one instruction set for one element type. They process the positions begin ≤ i < end. States and scratch are in
// the accumulator dtype; `scratch` has room for scratch_size() numbers.
struct LinearKernels {
  const char* name;       // the name in records, such as "avx512"
  const char* step_name;  // the name of the kernels that compute `step`, which may be others
  int64_t (*scratch_size)(const LinearHeadParams&);
  // Add keys to S and Z, or to T and Z.
  void (*add_keys)(const LinearHeadParams&, int64_t begin, int64_t end, void* s, void* z, void* scratch);
  void (*add_keys_transposed)(const LinearHeadParams&, int64_t begin, int64_t end, void* t, void* z, void* scratch);
  // The causal forward pass: writes outputs and normalizers, and adds the keys of the range to S and Z.
  void (*forward)(const LinearHeadParams&, int64_t begin, int64_t end, void* s, void* z, void* scratch);
  // The forward pass of queries that see all keys in S and Z, which do not change.
  void (*read)(const LinearHeadParams&, int64_t begin, int64_t end, const void* s, const void* z, void* scratch);
  // Writes grad_q and δ. With the causal mask it also adds the keys of the range to T and Z.
  void (*backward_queries)(const LinearHeadParams&, int64_t begin, int64_t end, bool causal, void* t, void* z, void* scratch);
  // Adds queries to R and Y.
  void (*add_queries)(const LinearHeadParams&, int64_t begin, int64_t end, void* r, void* y, void* scratch);
  // Writes grad_k and grad_v. With the causal mask it goes from the last position to the first and adds their queries to R and Y.
  void (*backward_keys)(const LinearHeadParams&, int64_t begin, int64_t end, bool causal, void* r, void* y, void* scratch);
  // One decoding step: adds row 0 of k and v to S [F,M] and Z [F], then writes row 0 of the output. S and Z have no padding here;
  // with scales the state's scale follows Z.
  void (*step)(const LinearHeadParams&, void* s, void* z, void* scratch);
};

// The vector kernels for float32 and bfloat16; null for other types. These functions are weak symbols: in a build without the
// kernels of an instruction set, the address of its function is null.
[[gnu::weak]] const LinearKernels* linear_kernels_avx512(ElementType element);
[[gnu::weak]] const LinearKernels* linear_kernels_avx2(ElementType element);
[[gnu::weak]] const LinearKernels* linear_kernels_neon(ElementType element);
// The kernels with AMX, for bfloat16 and entrywise feature maps; null for other types. Their `step` is that of AVX-512, since a
// step has no product of matrices. They call kernels for AVX-512, and these two functions use AVX-512 instructions as well. The
// emulated kernels compute the same without AMX, for tests.
[[gnu::weak]] const LinearKernels* linear_kernels_amx(ElementType element);
[[gnu::weak]] const LinearKernels* linear_kernels_amx_emulated();
// The portable kernels for float32, bfloat16 and float64; null for float16.
const LinearKernels* linear_kernels_portable(ElementType element);

}  // namespace attn::cpu
