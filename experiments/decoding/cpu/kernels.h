// The interface of the decoder's CPU kernels in float32: products with weights, and layer normalisation. Every instruction set
// provides them. They allocate nothing and use one thread.
#pragma once

#include <cstdint>

#include "attn/element_type.h"

namespace attn::cpu {
enum class InstructionSet;  // instruction_set.h, whose includes do not belong into kernels (attn/cpu/simd.h says why)
}

namespace experiments {

// y[b][o] = x[b]·weight[o] + bias[o] (+ residual[b][o]) for b < batch, then max(0, ·) if relu. Rows are contiguous; strides are
// in numbers. y may overlap neither x nor weight; it may be the residual.
struct LinearLayerParams {
  const float* x;       // [batch, depth]
  const float* weight;  // [outputs, depth], as torch::nn::Linear stores it
  const float* bias;    // [outputs]
  const float* residual = nullptr;
  float* y;
  int64_t batch, depth;
  int64_t x_stride, y_stride, residual_stride = 0;
  bool relu = false;
};

struct DecoderKernels {
  const char* name;  // the name in records, such as "avx512"
  // Computes the outputs begin ≤ o < end for the whole batch. An output does not depend on the range.
  void (*linear)(const LinearLayerParams&, int64_t begin, int64_t end);
  // y = (x − mean(x)) / sqrt(variance(x) + epsilon) · weight + bias for one row of `width` numbers, as torch::nn::LayerNorm.
  void (*layer_norm)(const float* x, int64_t width, const float* weight, const float* bias, float epsilon, float* y);
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
