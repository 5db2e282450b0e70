// The interface of the decoder's CPU kernels in float32: products with weights, layer normalisation, and transposition. Every
// instruction set provides them. They allocate nothing and use one thread.
#pragma once

#include <cstdint>

#include "attn/element_type.h"

namespace attn::cpu {
enum class InstructionSet;  // instruction_set.h, whose includes do not belong into kernels (attn/cpu/simd.h says why)
}

namespace experiments {

// Kernels with "columns" in their name take activations by columns, [width, batch], where the batch is a multiple of
// kDecoderColumns. Each number of the weights is multiplied with vectors of several sequences, so that there are no sums over the
// parts of a vector, which take long beside dot products of 256 numbers.
constexpr int64_t kDecoderColumns = 16;

// y[b][o] = x[b]·weight[o] + bias[o] (+ residual[b][o]) for b < batch, then max(0, ·) if relu. Rows are contiguous; strides, of
// rows or, for activations by columns, from one number of a sequence to the next, are in numbers. y may overlap neither x nor
// weight; it may be the residual.
struct LinearLayerParams {
  const float* x;       // [batch, depth], or [depth, batch] by columns
  const float* weight;  // [outputs, depth], as torch::nn::Linear stores it
  const float* bias;    // [outputs]
  const float* residual = nullptr;
  float* y;  // [batch, outputs], or [outputs, batch] by columns
  int64_t batch, depth;
  int64_t x_stride, y_stride, residual_stride = 0;
  bool relu = false;
};

// y = (x − mean(x)) / sqrt(variance(x) + epsilon) · weight + bias for each sequence, as torch::nn::LayerNorm. x and y are
// [batch, width], or [width, batch] by columns, with the same stride.
struct NormParams {
  const float* x;
  float* y;
  int64_t width, stride;
  const float *weight, *bias;  // [width]
  float epsilon;
};

struct DecoderKernels {
  const char* name;  // the name in records, such as "avx512"
  // Computes the outputs begin ≤ o < end for the whole batch. An output does not depend on the range.
  void (*linear)(const LinearLayerParams&, int64_t begin, int64_t end);
  void (*linear_columns)(const LinearLayerParams&, int64_t begin, int64_t end);
  // Computes the sequences begin ≤ b < end. By columns, `begin` is a multiple of kDecoderColumns, and the sequences from `end` up
  // to the next multiple may be computed, too.
  void (*layer_norm)(const NormParams&, int64_t begin, int64_t end);
  void (*layer_norm_columns)(const NormParams&, int64_t begin, int64_t end);
  // to[c][r] = from[r][c] for r < rows and c < columns.
  void (*transpose)(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride);
};

// The kernels of each instruction set; null for element types other than float32, and if this build has none.
const DecoderKernels* decoder_kernels_portable(attn::ElementType element);
#ifdef __x86_64__
const DecoderKernels* decoder_kernels_avx2(attn::ElementType element);
const DecoderKernels* decoder_kernels_avx512(attn::ElementType element);
#else
inline const DecoderKernels* decoder_kernels_avx2(attn::ElementType) { return nullptr; }
inline const DecoderKernels* decoder_kernels_avx512(attn::ElementType) { return nullptr; }
#endif

// The kernels of this instruction set for float32, never null for an available one.
const DecoderKernels& decoder_kernels(attn::cpu::InstructionSet set);

}  // namespace experiments
