// RecurrentTable: the table of recurrent attention's vector kernels for one element type E. The kernels choose the rule and the
// kind of decays at run time. avx512.cpp, avx2.cpp and neon.cpp compile the table, each for its own vectors V.
#pragma once

#include "attn/cpu/kernel_table.h"
#include "attn/recurrent/cpu/backward.h"
#include "attn/recurrent/cpu/forward.h"
#include "attn/recurrent/cpu/step.h"

namespace attn::cpu {
namespace {

// Sequences of at most so many positions are computed token by token, because a chunk takes as long as 9 to 15 tokens (AVX2, 64
// and 128 dimensions), no matter how many of its 16 positions are used. Without queries chunks are used, since a step computes an
// output.
constexpr int64_t kTokenByToken = 8;

template <class V, class E>
class RecurrentTable {
  // Calls work(kernel) with a Kernel<V, E, delta rule?, a decay for each feature of the keys?>(params, scratch).
  template <template <class, class, bool, bool> class Kernel, class Work>
  static void with(const RecurrentHeadParams& params, void* scratch, const Work& work) {
    if (params.delta && params.feature_gates) work(Kernel<V, E, true, true>(params, scratch));
    else if (params.delta) work(Kernel<V, E, true, false>(params, scratch));
    else if (params.feature_gates) work(Kernel<V, E, false, true>(params, scratch));
    else work(Kernel<V, E, false, false>(params, scratch));
  }

 public:
  static constexpr RecurrentKernels kernels(const char* name) {
    return {
        name,
        [](const RecurrentHeadParams& params, bool backward) {
          const auto step = RecurrentStep<V, E, true, true>::scratch_size(params),
                     chunk = RecurrentScratch::size(params, backward);
          return step > chunk ? step : chunk;
        },
        [](const RecurrentHeadParams& params, int64_t begin, int64_t end, void* state, void* checkpoints, void* scratch) {
          if (end - begin <= kTokenByToken && params.q.data) {
            if (checkpoints && begin < end) __builtin_memcpy(checkpoints, state, sizeof(float) * size_t(state_size(params)));
            with<RecurrentStep>(params, scratch, [&](auto&& kernel) {
              for (auto t = begin; t < end; ++t) kernel.run(static_cast<float*>(state), padded(params.value_dim), t);
            });
            return;
          }
          with<RecurrentForward>(params, scratch, [&](auto&& kernel) {
            kernel.run(begin, end, static_cast<float*>(state), static_cast<float*>(checkpoints));
          });
        },
        [](const RecurrentHeadParams& params, int64_t begin, int64_t end, const void* checkpoints, void* grad_state,
           void* scratch) {
          with<RecurrentBackward>(params, scratch, [&](auto&& kernel) {
            kernel.run(begin, end, static_cast<const float*>(checkpoints), static_cast<float*>(grad_state));
          });
        },
        [](const RecurrentHeadParams& params, void* state, void* scratch) {
          with<RecurrentStep>(params, scratch,
                              [&](auto&& kernel) { kernel.run(static_cast<float*>(state), params.value_dim, 0); });
        },
    };
  }
};

}  // namespace
}  // namespace attn::cpu
