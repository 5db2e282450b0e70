// The kernels of the causal convolution for NEON.
#include "attn/cpu/simd.h"

#include "attn/convolution/cpu/vector_kernels.h"

namespace attn::cpu {

const ConvolutionKernels* convolution_kernels_neon(ElementType element) {
  static constexpr ConvolutionKernels float32 = ConvolutionTable<Neon, float, float>::kernels("neon");
  static constexpr ConvolutionKernels bfloat16 = ConvolutionTable<Neon, float, BFloat16>::kernels("neon");
  return by_element_type<ConvolutionKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
