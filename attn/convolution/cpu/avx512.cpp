// The kernels of the causal convolution for AVX-512.
#include "attn/cpu/simd.h"

#include "attn/convolution/cpu/vector_kernels.h"

namespace attn::cpu {

const ConvolutionKernels* convolution_kernels_avx512(ElementType element) {
  static constexpr ConvolutionKernels float32 = ConvolutionTable<Avx512, float, float>::kernels("avx512");
  static constexpr ConvolutionKernels bfloat16 = ConvolutionTable<Avx512, float, BFloat16>::kernels("avx512");
  return by_element_type<ConvolutionKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
