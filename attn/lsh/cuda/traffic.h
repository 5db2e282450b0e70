// How many bytes of global memory the kernels of LSH attention read and write. A test counts the accesses of the emulated kernels
// and holds them to this (tests/emulation/instrumented), and the model of time (attn/cuda/model) predicts with it. Change it
// together with the kernels.
#pragma once

#include <cstdint>

#include "attn/cuda/stream.h"

namespace attn::cuda {

struct LshTrafficProblem {
  int64_t heads;  // of all batch entries
  int64_t length, rounds, chunk;
  int64_t columns;  // of the rotation of a round: half the number of buckets
  int64_t head_dim, value_dim;
  int64_t element_bytes;
  int64_t tile_rows;  // queries of a block: 64, or 32 for float32 with 128 dimensions
};

// Bytes that blocks read and write, where a block reads each byte of its chunk once. All positions are visible, the profile is
// trax, and the length is a multiple of the chunk.
//
// Forward: the hash reads x and, for each 32 positions, the rotations, and writes a key of 8 bytes a round; the order is unpacked
// from the sorted keys. In each round, every block of queries reads the order and the rows of x and v of its chunk and of the
// chunk before it, and writes a float64 log-sum-exp. Rounds are merged through a float32 output and two float64 numbers a
// position. The radix sort of CUB is not included.
//
// Backward: each block reads the same rows, and the output, g, log-sum-exp and shares of its queries. It adds to float32
// gradients of its queries, of the keys of its chunk and of those of the chunk before, which are read and written. At last the
// gradients are read and stored.
constexpr double lsh_traffic(const LshTrafficProblem& p, Pass pass) {
  const double heads = double(p.heads), length = double(p.length), rounds = double(p.rounds), element = double(p.element_bytes);
  const double of_x = double(p.head_dim) * element, of_v = double(p.value_dim) * element;
  const double tiles = double((p.chunk + p.tile_rows - 1) / p.tile_rows);  // blocks for a chunk
  // Of a round: the order and the rows of two chunks for each block.
  const double gathered = 2 * tiles * length * (sizeof(int64_t) + of_x + of_v);
  if (pass == Pass::forward) {
    const double rotations = length / 32 * rounds * double(p.head_dim * p.columns) * sizeof(float);
    const double keys = rounds * length * sizeof(uint64_t);
    const double sorting = length * of_x + rotations + keys + keys + rounds * length * sizeof(int64_t);
    const double merging = (rounds - 1) * length * 2 * (double(p.value_dim) * sizeof(float) + 2 * sizeof(double)) +
                           (rounds > 1 ? length * 2 * sizeof(double) : 0);
    return heads * (sorting + rounds * (gathered + length * sizeof(double)) + merging + length * of_v);
  }
  const double own = length * (2 * of_v + sizeof(double) + sizeof(float));
  const double query_gradients = length * double(p.head_dim) * sizeof(float);
  const double key_gradients = 2 * tiles * length * double(p.head_dim + p.value_dim) * sizeof(float);
  const double stored = length * (double(3 * p.head_dim + 2 * p.value_dim) * sizeof(float) + 2 * of_x + of_v);
  return heads * (rounds * (gathered + own + 2 * (query_gradients + key_gradients)) + stored);
}

}  // namespace attn::cuda
