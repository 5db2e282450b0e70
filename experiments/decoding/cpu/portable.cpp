#include <cmath>

#include "attn/cpu/kernel_family.h"
#include "attn/cpu/kernel_table.h"
#include "experiments/decoding/cpu/kernels.h"

namespace experiments {
namespace {

// There are no vector kernels for ARM.
constexpr attn::cpu::KernelFamily<DecoderKernels> kFamily{"decoder", decoder_kernels_portable, decoder_kernels_portable,
                                                          decoder_kernels_avx2, decoder_kernels_avx512};

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

void layer_norm(const float* x, int64_t width, const float* weight, const float* bias, float epsilon, float* y) {
  float sum = 0, squares = 0;
  for (int64_t i = 0; i < width; ++i) sum += x[i];
  const float mean = sum / float(width);
  for (int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float factor = 1 / std::sqrt(squares / float(width) + epsilon);
  for (int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

}  // namespace

const DecoderKernels* decoder_kernels_portable(attn::ElementType element) {
  static constexpr DecoderKernels float32{"portable", linear, layer_norm};
  return attn::cpu::by_element_type<DecoderKernels>(element, &float32, nullptr, nullptr);
}

const DecoderKernels& decoder_kernels(attn::cpu::InstructionSet set) { return *kFamily.table(set, attn::ElementType::float32); }

}  // namespace experiments
