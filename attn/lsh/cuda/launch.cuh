// Launches the kernels of LSH attention for one pass, in order.
#pragma once

#include "attn/cuda/launch.cuh"
#include "attn/lsh/cuda/backward.cuh"
#include "attn/lsh/cuda/forward.cuh"

namespace attn::cuda {

template <class S>
void launch_lsh_forward(const LshParams& params, const StreamLauncher& launch) {
  const int64_t query_tiles = (params.chunk + S::kRows - 1) / S::kRows;
  for (int64_t round = 0; round < params.rounds; ++round)
    launch(lsh_forward<S>, params.batch * params.heads * params.chunks * query_tiles, S::kThreads, lsh_shared_bytes<S>(3), params,
           round);
}

template <class S>
void launch_lsh_backward(const LshParams& params, const StreamLauncher& launch) {
  const int64_t query_tiles = (params.chunk + S::kRows - 1) / S::kRows, positions = params.batch * params.heads * params.length;
  launch(lsh_backward<S>, params.batch * params.heads * params.rounds * params.chunks * query_tiles, S::kThreads,
         lsh_shared_bytes<S>(4), params);
  constexpr int kWarps = 8;
  launch(lsh_store_gradients<typename S::E>, (positions + kWarps - 1) / kWarps, kWarps * kWarp, size_t{0}, params);
}

}  // namespace attn::cuda
