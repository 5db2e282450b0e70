// The interface of the CPU kernels of sparse attention: the functions that each instruction set provides for one (batch entry,
// head). attn/sparse/cpu/implementation.cpp calls them. attn/sparse/implementation.h defines sparse attention.
#pragma once

#include <cmath>
#include <cstdint>

#include "attn/cpu/rows.h"
#include "attn/element_type.h"
#include "attn/sparse/visible_part.h"

namespace attn::cpu {

// The data of one head. A void* points to numbers in the accumulator dtype: float32, or float64 for float64 elements.
struct SparseHeadParams {
  int64_t dim = 0, value_dim = 0;  // D, M
  double scale = 1;                // the factor of the scores
  double sink = -INFINITY;         // the score of a key without a value, which every query sees; −∞ for none
  Rows q, k, v, output;            // by position
  // [N] by position: the logarithm of the sum of e^score over the keys that a query sees; −∞ for a query that sees none. The
  // forward pass writes it, and the backward pass reads it.
  void* log_sum_exp = nullptr;
  // [N, padded M]: the output of the parts so far, if several parts are joined and the elements do not have the accumulator
  // dtype; otherwise null.
  void* partial_output = nullptr;
  // The backward pass reads these …
  Rows grad_output;
  const void* grad_log_sum_exp = nullptr;  // [N]; null for zeros
  void* delta = nullptr;                   // [N], which store_delta() writes
  // … and adds to these, which have rows of padded(D) and padded(M) numbers.
  void *grad_q = nullptr, *grad_k = nullptr, *grad_v = nullptr;
  int64_t grad_q_stride = 0, grad_k_stride = 0, grad_v_stride = 0;
};

// The kernels of one instruction set for one element type.
struct SparseKernels {
  const char* name;  // in options and records, such as "avx512"
  int64_t tile;      // how many rows are computed together; rows are best divided at its multiples
  int64_t (*scratch_size)(const SparseHeadParams&);  // the size of `scratch`, in numbers of the accumulator dtype
  // Computes the output and the log-sum-exp of the rows begin … end − 1 of a part. With `resumes`, both already hold the results
  // of other parts, with which those of this part are joined.
  void (*forward)(const SparseHeadParams&, const VisiblePart&, bool resumes, int64_t begin, int64_t end, void* scratch);
  // Writes delta of the queries begin … end − 1: Σ_m output[m] · grad_output[m] minus the gradient of the log-sum-exp.
  void (*store_delta)(const SparseHeadParams&, int64_t begin, int64_t end);
  // Adds the gradients of the pairs in the rows begin … end − 1 of a part.
  void (*backward)(const SparseHeadParams&, const VisiblePart&, int64_t begin, int64_t end, void* scratch);
};

// The vector kernels for float32 and bfloat16; null for other types. These functions are weak symbols: in a build without the
// kernels of an instruction set, the address of its function is null.
[[gnu::weak]] const SparseKernels* sparse_kernels_avx512(ElementType element);
[[gnu::weak]] const SparseKernels* sparse_kernels_avx2(ElementType element);
[[gnu::weak]] const SparseKernels* sparse_kernels_neon(ElementType element);
// The portable kernels for float32, bfloat16 and float64; null for float16.
const SparseKernels* sparse_kernels_portable(ElementType element);

}  // namespace attn::cpu
