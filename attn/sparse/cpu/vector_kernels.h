// The table of sparse attention's vector kernels for one element type. avx512.cpp, avx2.cpp and neon.cpp compile it, each for its
// own vector type V.
#pragma once

#include "attn/cpu/kernel_table.h"
#include "attn/sparse/cpu/backward.h"
#include "attn/sparse/cpu/forward.h"
#include "attn/sparse/cpu/kernels.h"

namespace attn::cpu {
namespace {

template <class V, class E>
constexpr SparseKernels sparse_table(const char* name) {
  return {
      name,
      kTile,
      [](const SparseHeadParams& params) {
        const VisiblePart none;
        const auto forward = SparseForward<V, E>(params, none, ScratchCutter()).scratch_size();
        const auto backward = SparseBackward<V, E>(params, none, ScratchCutter()).scratch_size();
        return forward > backward ? forward : backward;
      },
      [](const SparseHeadParams& params, const VisiblePart& part, bool resumes, int64_t begin, int64_t end, void* scratch) {
        SparseForward<V, E>(params, part, ScratchCutter(scratch)).forward(resumes, begin, end);
      },
      store_delta<V, E>,
      [](const SparseHeadParams& params, const VisiblePart& part, int64_t begin, int64_t end, void* scratch) {
        SparseBackward<V, E>(params, part, ScratchCutter(scratch)).backward(begin, end);
      },
  };
}

}  // namespace
}  // namespace attn::cpu
