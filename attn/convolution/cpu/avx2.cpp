// The kernels of the causal convolution for AVX2.
#include "attn/cpu/simd.h"

#include "attn/convolution/cpu/vector_kernels.h"

namespace attn::cpu {

const ConvolutionKernels* convolution_kernels_avx2(ElementType element) {
  static constexpr ConvolutionKernels float32 = ConvolutionTable<Avx2, float, float>::kernels("avx2");
  static constexpr ConvolutionKernels bfloat16 = ConvolutionTable<Avx2, float, BFloat16>::kernels("avx2");
  return by_element_type<ConvolutionKernels>(element, &float32, &bfloat16, nullptr);
}

}  // namespace attn::cpu
