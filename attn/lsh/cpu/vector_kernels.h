// The table of LSH attention's vector kernels for one element type. avx512.cpp, avx2.cpp and neon.cpp compile it, each for its
// own vector type V.
#pragma once

#include "attn/cpu/kernel_table.h"
#include "attn/lsh/cpu/backward.h"
#include "attn/lsh/cpu/forward.h"
#include "attn/lsh/cpu/hash.h"
#include "attn/lsh/cpu/kernels.h"

namespace attn::cpu {
namespace {

template <class V, class E>
constexpr LshKernels lsh_table(const char* name) {
  return {
      name,
      LshScratch::size,
      [](const LshHeadParams& params, int64_t begin, int64_t end, const LshRotations& rotations, int32_t* buckets,
         void* scratch) { LshHash<V, E>(params, scratch).hash(begin, end, rotations, buckets); },
      [](const LshHeadParams& params, int64_t round, int64_t first, int64_t last, void* scratch) {
        LshForward<V, E>(params, scratch).forward(round, first, last);
      },
      store_partial_output<V, E>,
      [](const LshHeadParams& params, int64_t first, int64_t last, const LshGradients& to, void* scratch) {
        LshBackward<V, E>(params, scratch).backward(first, last, to);
      },
      store_gradients<V, E>,
  };
}

}  // namespace
}  // namespace attn::cpu
