// LinearTable: the table of linear attention's vector kernels for one element type E, which choose the feature map at run time.
// avx512.cpp, avx2.cpp and neon.cpp compile it, each for its own vectors V.
#pragma once

#include "attn/cpu/kernel_table.h"
#include "attn/linear/cpu/backward.h"
#include "attn/linear/cpu/forward.h"
#include "attn/linear/cpu/kernels.h"
#include "attn/linear/cpu/step.h"

namespace attn::cpu {
namespace {

template <class V, class E>
class LinearTable {
  // Calls work(Kernel<V, E, Map>(params, scratch)), where Map is the feature map of the parameters.
  template <template <class, class, class> class Kernel, class Work>
  static void with(const LinearHeadParams& params, void* scratch, const Work& work) {
    with_feature_map(FeatureMaps<V>(), params.map, [&](auto map) { work(Kernel<V, E, decltype(map)>(params, scratch)); });
  }
  static float* floats(void* p) { return static_cast<float*>(p); }
  static const float* floats(const void* p) { return static_cast<const float*>(p); }

 public:
  static constexpr LinearKernels kernels(const char* name) {
    return {
        name,
        name,
        LinearScratch::size,
        [](const LinearHeadParams& params, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
          with<LinearChunk>(params, scratch,
                            [&](auto&& kernel) { kernel.template add_keys<false>(begin, end, floats(s), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, void* t, void* z, void* scratch) {
          with<LinearChunk>(params, scratch,
                            [&](auto&& kernel) { kernel.template add_keys<true>(begin, end, floats(t), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
          with<LinearForward>(params, scratch, [&](auto&& kernel) { kernel.forward(begin, end, floats(s), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, const void* s, const void* z, void* scratch) {
          with<LinearForward>(params, scratch, [&](auto&& kernel) { kernel.read(begin, end, floats(s), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, bool causal, void* t, void* z, void* scratch) {
          with<LinearBackward>(params, scratch,
                               [&](auto&& kernel) { kernel.backward_queries(begin, end, causal, floats(t), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, void* r, void* y, void* scratch) {
          with<LinearChunk>(params, scratch, [&](auto&& kernel) { kernel.add_queries(begin, end, floats(r), floats(y)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, bool causal, void* r, void* y, void* scratch) {
          with<LinearBackward>(params, scratch,
                               [&](auto&& kernel) { kernel.backward_keys(begin, end, causal, floats(r), floats(y)); });
        },
        [](const LinearHeadParams& params, void* s, void* z, void* scratch) {
          with<LinearStep>(params, scratch, [&](auto&& kernel) { kernel.step(floats(s), floats(z)); });
        },
    };
  }
};

}  // namespace
}  // namespace attn::cpu
