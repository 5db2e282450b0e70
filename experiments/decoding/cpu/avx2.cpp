// The kernels of the decoder, compiled for AVX2.
#include "experiments/decoding/cpu/vector_kernels.h"

namespace experiments {

const DecoderKernels* decoder_kernels_avx2(attn::ElementType element) {
  static constexpr DecoderKernels float32 = DecoderTable<attn::cpu::Avx2>::kernels("avx2");
  return attn::cpu::by_element_type<DecoderKernels>(element, &float32, nullptr, nullptr);
}

}  // namespace experiments
