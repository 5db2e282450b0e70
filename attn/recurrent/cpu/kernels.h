// The interface of recurrent attention's CPU kernels. Each instruction set provides them; each works on one (batch entry, head)
// and a range of its positions. attn/recurrent/cpu/implementation.cpp combines them into the passes over whole tensors.
//
// The state S [K,V] decays and grows with each position t, and its output is read from the new state:
//   S ← e^(g_t) S                              the decay; g_t = −∞ clears the state, and the gradient of g_t is then 0
//   S ← diag(e^(g_t)) S                        the same with `feature_gates`, where g_t [K] has a number for each row of S
//   S ← S + k_t u_tᵀ                           u_t = v_t, or with the delta rule u_t = β_t (v_t − Sᵀk_t)
//   output_t = scale · Sᵀq_t
// With `normalizes`, q_t stands for q_t / √(Σ q_t² + kLengthEpsilon), and k_t for the same of k_t.
#pragma once

#include <cstdint>

#include "attn/cpu/rows.h"
#include "attn/element_type.h"
#include "attn/recurrent/definition.h"

namespace attn::cpu {

// The parameters of one (batch entry, head). Rows have the tensors' element type; all other numbers are in the accumulator dtype:
// float64 for float64 elements, float32 for others.
struct RecurrentHeadParams {
  int64_t key_dim, value_dim;  // K, V
  bool delta;                  // whether the delta rule computes u
  bool feature_gates;          // whether g has a number for each feature of the keys
  bool normalizes;             // whether q and k are divided by their lengths
  double scale;                // the factor of the outputs
  Rows q, k, v, output, grad_output, grad_q, grad_k, grad_v;
  // [T], from position 0 on; null stands for g = 0 and β = 1. With feature_gates, g is rows [T,K] whose numbers are contiguous.
  const void *g, *beta;
  int64_t g_stride, beta_stride;  // from one position to the next, in numbers
  void *grad_g, *grad_beta;       // [T], contiguous; with feature_gates, grad_g is rows as g is
  int64_t grad_g_stride;          // from one row of grad_g to the next, with feature_gates
  // Where several heads share q and k, the rows of grad_q and grad_k are in the accumulator dtype, and every head but the first
  // adds its own gradients to them.
  bool shares_keys, adds_gradients;
};

// How many numbers a state has, [padded K, padded V] with zeros as padding.
constexpr int64_t state_size(const RecurrentHeadParams& p) { return checkpoint_numbers(p.key_dim, p.value_dim); }
static_assert(checkpoint_numbers(17, 33) == padded(17) * padded(33));

// The kernels of one instruction set for one element type. They process the positions begin ≤ t < end, which are a whole
// sequence and may be none. States and scratch are in the accumulator dtype; `scratch` has room for scratch_size() numbers.
struct RecurrentKernels {
  const char* name;  // the name in records, such as "avx512"
  int64_t (*scratch_size)(const RecurrentHeadParams&, bool backward);
  // Writes the outputs, and updates the state. If the rows of q are null, only updates the state. Unless `checkpoints` is null,
  // stores the state before every kCheckpoint positions there.
  void (*forward)(const RecurrentHeadParams&, int64_t begin, int64_t end, void* state, void* checkpoints, void* scratch);
  // Writes the gradients, from the checkpoints that forward() stored. `grad_state` is the gradient of the state after `end`, and
  // becomes that of the state before `begin`.
  void (*backward)(const RecurrentHeadParams&, int64_t begin, int64_t end, const void* checkpoints, void* grad_state,
                   void* scratch);
  // One decoding step, which processes position 0. The state [K,V] has no padding.
  void (*step)(const RecurrentHeadParams&, void* state, void* scratch);
};

// The vector kernels for float32 and bfloat16; null for other types. These functions are weak symbols: in a build without the
// kernels of an instruction set, the address of its function is null.
[[gnu::weak]] const RecurrentKernels* recurrent_kernels_avx512(ElementType element);
[[gnu::weak]] const RecurrentKernels* recurrent_kernels_avx2(ElementType element);
[[gnu::weak]] const RecurrentKernels* recurrent_kernels_neon(ElementType element);
// The portable kernels for float32, bfloat16 and float64; null for float16.
const RecurrentKernels* recurrent_kernels_portable(ElementType element);

}  // namespace attn::cpu
