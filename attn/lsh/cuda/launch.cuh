// Which kernels of LSH attention run, in what order, for one call.
//
// Launch: as for linear attention. Sort: sort(keys, sorted keys, count, bits) puts 64-bit keys in ascending order by their lowest
// `bits`.
#pragma once

#include "attn/lsh/cuda/kernels.cuh"
#include "attn/lsh/cuda/hash.cuh"

namespace attn::cuda {

inline int bits_for(int64_t values) {
  int bits = 1;
  while (bits < 63 && (int64_t(1) << bits) < values) ++bits;
  return bits;
}

// `keys` and `sorted`: [G·R·N] each.
template <class E, class Launch, class Sort>
void sort_positions(const LshCall& c, const LshRotations& rotations, uint64_t* keys, uint64_t* sorted, const Launch& launch,
                    const Sort& sort) {
  const int64_t buckets = 2 * int64_t(rotations.first_half) * (rotations.second_half > 0 ? 2 * rotations.second_half : 1);
  const int64_t groups = (c.length + kHashedPositions - 1) / kHashedPositions * c.batch * c.heads;
  const int64_t segments = c.batch * c.heads * c.rounds, count = segments * c.length;
  const int position_bits = bits_for(c.length);
  launch(hash<E>, (groups + kHashWarps - 1) / kHashWarps, kHashWarps * kWarp,
         sizeof(float) * size_t(kHashWarps * kHashedPositions * (c.head_dim + 1)), c, rotations, buckets, position_bits, keys);
  sort(keys, sorted, count, position_bits + bits_for(segments * (buckets + 1)));
  constexpr int kThreads = 256;
  launch(unpack_positions, (count + kThreads - 1) / kThreads, kThreads, size_t{0}, static_cast<const uint64_t*>(sorted), count,
         position_bits, c.order);
}

template <class S, class Launch>
void run_lsh_forward(const LshCall& c, const Launch& launch) {
  const int64_t query_tiles = (c.chunk + S::kTokens - 1) / S::kTokens;
  for (int64_t round = 0; round < c.rounds; ++round)
    launch(lsh_forward<S>, c.batch * c.heads * c.chunks * query_tiles, S::kThreads, lsh_shared_bytes<S>(3), c, round);
}

template <class S, class Launch>
void run_lsh_backward(const LshCall& c, const Launch& launch) {
  const int64_t query_tiles = (c.chunk + S::kTokens - 1) / S::kTokens, positions = c.batch * c.heads * c.length;
  launch(lsh_backward<S>, c.batch * c.heads * c.rounds * c.chunks * query_tiles, S::kThreads, lsh_shared_bytes<S>(4), c);
  constexpr int kWarps = 8;
  launch(lsh_store_gradients<typename S::E>, (positions + kWarps - 1) / kWarps, kWarps * kWarp, size_t{0}, c);
}

}  // namespace attn::cuda
