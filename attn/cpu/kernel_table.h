// Chooses the table of kernels for an element type.
#pragma once

#include "attn/element_type.h"

namespace attn::cpu {
namespace {  // each instruction set needs its own copy, see simd.h

// A table is null if there are no kernels for its type.
template <class Kernels>
constexpr const Kernels* by_element_type(ElementType element, const Kernels* float32, const Kernels* bfloat16,
                                         const Kernels* float64) {
  switch (element) {
    case ElementType::float32: return float32;
    case ElementType::bfloat16: return bfloat16;
    case ElementType::float64: return float64;
    case ElementType::float16: return nullptr;
  }
  return nullptr;
}

}  // namespace
}  // namespace attn::cpu
