// The kernels of the decoder without vector instructions.
#include <cmath>

#include "attn/cpu/kernel_family.h"
#include "attn/cpu/kernel_table.h"
#include "experiments/decoding/cpu/kernels.h"

namespace experiments {
namespace {

using attn::cpu::InstructionSet;

const attn::cpu::KernelFamily<DecoderKernels, attn::ImplementationRequest>& decoder_family() {
  static const attn::cpu::KernelFamily<DecoderKernels, attn::ImplementationRequest> all{
      .members = {{InstructionSet::avx512, decoder_kernels_avx512},
                  {InstructionSet::avx2, decoder_kernels_avx2},
                  {InstructionSet::neon, decoder_kernels_portable},  // there are no vector kernels for ARM
                  {InstructionSet::portable, decoder_kernels_portable}}};
  return all;
}

void linear(const LinearLayerParams& p, int64_t begin, int64_t end) {
  for (int64_t o = begin; o < end; ++o) {
    for (int64_t b = 0; b < p.batch; ++b) {
      const float *const x = p.x + b * p.x_stride, *const weight = p.weight + o * p.depth;
      float sum = 0;
      for (int64_t i = 0; i < p.depth; ++i) sum += x[i] * weight[i];
      sum += p.bias[o];
      if (p.residual) sum += p.residual[b * p.residual_stride + o];
      p.y[b * p.y_stride + o] = p.relu && sum < 0 ? 0 : sum;
    }
  }
}

void linear_columns(const LinearLayerParams& p, int64_t begin, int64_t end) {
  for (int64_t o = begin; o < end; ++o) {
    float* const y = p.y + o * p.y_stride;
    for (int64_t b = 0; b < p.batch; ++b) y[b] = p.bias[o] + (p.residual ? p.residual[o * p.residual_stride + b] : 0);
    for (int64_t i = 0; i < p.depth; ++i) {
      const float* const x = p.x + i * p.x_stride;
      const float weight = p.weight[o * p.depth + i];
      for (int64_t b = 0; b < p.batch; ++b) y[b] += weight * x[b];
    }
    for (int64_t b = 0; p.relu && b < p.batch; ++b) y[b] = y[b] < 0 ? 0 : y[b];
  }
}

// The numbers of a sequence are `step` apart.
void normalise(const NormParams& p, const float* x, float* y, int64_t step) {
  float sum = 0, squares = 0;
  for (int64_t i = 0; i < p.width; ++i) sum += x[i * step];
  const float mean = sum / float(p.width);
  for (int64_t i = 0; i < p.width; ++i) squares += (x[i * step] - mean) * (x[i * step] - mean);
  const float factor = 1 / std::sqrt(squares / float(p.width) + p.epsilon);
  for (int64_t i = 0; i < p.width; ++i) y[i * step] = (x[i * step] - mean) * factor * p.weight[i] + p.bias[i];
}

void layer_norm(const NormParams& p, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) normalise(p, p.x + b * p.stride, p.y + b * p.stride, 1);
}

void layer_norm_columns(const NormParams& p, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) normalise(p, p.x + b, p.y + b, p.stride);
}

void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
}

}  // namespace

const DecoderKernels* decoder_kernels_portable(attn::ElementType element) {
  static constexpr DecoderKernels float32{"portable", linear, linear_columns, layer_norm, layer_norm_columns, transpose};
  return attn::cpu::by_element_type<DecoderKernels>(element, &float32, nullptr, nullptr);
}

const DecoderKernels& decoder_kernels(attn::cpu::InstructionSet set) {
  return *decoder_family().table(set, attn::ElementType::float32);
}

}  // namespace experiments
