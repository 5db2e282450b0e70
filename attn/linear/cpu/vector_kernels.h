// LinearTable: the table of linear attention's vector kernels for one element type E. The kernels choose the feature map at run
// time. avx512.cpp, avx2.cpp and neon.cpp compile the table, each for its own vectors V.
#pragma once

#include "attn/cpu/kernel_table.h"
#include "attn/linear/cpu/kernels.h"
#include "attn/linear/cpu/vectors/backward.h"
#include "attn/linear/cpu/vectors/forward.h"
#include "attn/linear/cpu/vectors/step.h"

namespace attn::cpu {
namespace {

template <class V, class E>
class LinearTable {
  // Calls work() with a LinearChunk<V, E, Map>, where Map is the feature map of the parameters.
  template <class Work>
  static void with_chunk(const LinearHeadParams& params, void* scratch, const Work& work) {
    with_feature_map(FeatureMaps<V>(), params.map, [&](auto map) {
      LinearChunk<V, E, decltype(map)> chunk(params, scratch);
      work(chunk);
    });
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
          with_chunk(params, scratch, [&](auto& chunk) { chunk.template add_keys<false>(begin, end, floats(s), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, void* t, void* z, void* scratch) {
          with_chunk(params, scratch, [&](auto& chunk) { chunk.template add_keys<true>(begin, end, floats(t), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
          with_chunk(params, scratch, [&](auto& chunk) { linear_forward(chunk, begin, end, floats(s), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, const void* s, const void* z, void* scratch) {
          with_chunk(params, scratch, [&](auto& chunk) { linear_read(chunk, begin, end, floats(s), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, bool causal, void* t, void* z, void* scratch) {
          with_chunk(params, scratch,
                     [&](auto& chunk) { linear_backward_queries(chunk, begin, end, causal, floats(t), floats(z)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, void* r, void* y, void* scratch) {
          with_chunk(params, scratch, [&](auto& chunk) { chunk.add_queries(begin, end, floats(r), floats(y)); });
        },
        [](const LinearHeadParams& params, int64_t begin, int64_t end, bool causal, void* r, void* y, void* scratch) {
          with_chunk(params, scratch,
                     [&](auto& chunk) { linear_backward_keys(chunk, begin, end, causal, floats(r), floats(y)); });
        },
        [](const LinearHeadParams& params, void* s, void* z, void* scratch) {
          with_chunk(params, scratch, [&](auto& chunk) { linear_step(chunk, floats(s), floats(z)); });
        },
    };
  }
};

}  // namespace
}  // namespace attn::cpu
