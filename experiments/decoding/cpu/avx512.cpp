// The kernels of the decoder, compiled for AVX-512.
#include "experiments/decoding/cpu/vector_kernels.h"

namespace experiments {

const DecoderKernels* decoder_kernels_avx512(attn::ElementType element) {
  static constexpr DecoderKernels float32 = DecoderTable<attn::cpu::Avx512>::kernels("avx512");
  return attn::cpu::by_element_type<DecoderKernels>(element, &float32, nullptr, nullptr);
}

}  // namespace experiments
