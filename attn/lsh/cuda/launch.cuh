// Launches the kernels of LSH attention for one pass, in order.
#pragma once

#include "attn/cuda/launch.cuh"
#include "attn/cuda/stream.h"
#include "attn/lsh/cuda/backward.cuh"
#include "attn/lsh/cuda/forward.cuh"

namespace attn::cuda {

// The shared memory in bytes of a block in a pass.
template <class S>
constexpr size_t pass_shared_bytes(Pass pass) {
  return pass == Pass::forward ? LshNeeds<S, Pass::forward>::kSharedBytes : LshNeeds<S, Pass::backward>::kSharedBytes;
}

template <class S>
void launch_lsh_forward(const LshParams& params, const StreamLauncher& launch) {
  const int64_t query_tiles = (params.chunk + S::kRows - 1) / S::kRows;
  for (int64_t round = 0; round < params.rounds; ++round)
    launch(lsh_forward<S>, params.batch * params.heads * params.chunks * query_tiles, S::kThreads,
           pass_shared_bytes<S>(Pass::forward), params, round);
}

template <class S>
void launch_lsh_backward(const LshParams& params, const StreamLauncher& launch) {
  const int64_t query_tiles = (params.chunk + S::kRows - 1) / S::kRows, positions = params.batch * params.heads * params.length;
  constexpr int kWarps = 8;
  for (int64_t round = 0; round < params.rounds; ++round) {
    for (int64_t tile = 0; tile < query_tiles; ++tile)
      launch(lsh_backward<S>, params.batch * params.heads * params.chunks, S::kThreads, pass_shared_bytes<S>(Pass::backward),
             params, round, tile);
    if (params.wrapped_key)
      launch(lsh_add_wrapped, (params.batch * params.heads * params.chunk + kWarps - 1) / kWarps, kWarps * kWarp, size_t{0},
             params, round);
  }
  launch(lsh_store_gradients<typename S::E>, (positions + kWarps - 1) / kWarps, kWarps * kWarp, size_t{0}, params);
}

}  // namespace attn::cuda
