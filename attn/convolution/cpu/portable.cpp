// The portable kernels of the causal convolution: the vector kernels, with vectors of one number. "auto" chooses them where there
// are no vector kernels, and for float64.
#include <c10/util/BFloat16.h>

#include <cmath>

#include "attn/convolution/cpu/vector_kernels.h"

namespace attn::cpu {
namespace {

// The interface of the vectors in attn/cpu/simd.h, as far as the kernels use it.
template <class T>
struct OneNumber {
  using F = T;
  struct Mask {};
  static constexpr int kLanes = 1;
  static F zero() { return 0; }
  static F all(T x) { return x; }
  static Mask first(int64_t) { return {}; }
  template <class E>
  static F load(const E* p, Mask = {}) {
    return F(*p);
  }
  template <class E>
  static void store(E* p, F x, Mask = {}) {
    *p = E(x);
  }
  static F keep(F x, Mask) { return x; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F exp(F x) { return std::exp(x); }
  static T sum(F x) { return x; }
};

template <class N, class E>
using PortableConvolution = ConvolutionTable<OneNumber<N>, N, E>;

}  // namespace

const ConvolutionKernels* convolution_kernels_portable(ElementType element) {
  static constexpr auto float32 = PortableConvolution<float, float>::kernels("portable");
  static constexpr auto bfloat16 = PortableConvolution<float, c10::BFloat16>::kernels("portable");
  static constexpr auto float64 = PortableConvolution<double, double>::kernels("portable");
  return by_element_type<ConvolutionKernels>(element, &float32, &bfloat16, &float64);
}

}  // namespace attn::cpu
