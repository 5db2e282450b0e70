// Computes the order of positions in each round: the hash writes keys, one radix sort (CUB) sorts all of them, and the positions
// are read from the sorted keys.
#ifndef ATTN_CUDA_EMULATION
#include <cub/device/device_radix_sort.cuh>
#endif

#include "attn/cuda/launch.cuh"
#include "attn/lsh/cuda/hash.cuh"
#include "attn/lsh/cuda/run.h"

namespace attn::cuda {
namespace {

int bits_for(int64_t values) {
  int bits = 1;
  while (bits < 63 && (int64_t(1) << bits) < values) ++bits;
  return bits;
}

// Sorts 64-bit keys in ascending order of their lowest `bits` bits.
void sort_keys(void* scratch, size_t scratch_bytes, const uint64_t* from, uint64_t* to, int64_t count, int bits,
               cudaStream_t stream) {
#ifdef ATTN_CUDA_EMULATION
  (void)scratch, (void)scratch_bytes, (void)stream;
  emulation::sort_by_lowest_bits(from, to, count, bits);
#else
  C10_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(scratch, scratch_bytes, from, to, count, 0, bits, stream));
#endif
}

}  // namespace

size_t sort_bytes([[maybe_unused]] int64_t count) {
  size_t bytes = 1;
#ifndef ATTN_CUDA_EMULATION
  C10_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, static_cast<const uint64_t*>(nullptr),
                                                static_cast<uint64_t*>(nullptr), count));
#endif
  return bytes;
}

void run_lsh_sort(const LshParams& params, const LshRotations& rotations, ElementType element, uint64_t* keys, uint64_t* sorted,
                  void* scratch, size_t scratch_bytes, cudaStream_t stream) {
  const StreamLauncher launch(stream);
  const int64_t buckets = 2 * int64_t(rotations.first_half) * (rotations.second_half > 0 ? 2 * rotations.second_half : 1);
  const int64_t groups = (params.length + kHashedPositions - 1) / kHashedPositions * params.batch * params.heads;
  const int64_t segments = params.batch * params.heads * params.rounds, count = segments * params.length;
  const int position_bits = bits_for(params.length);
  with_types(element, [&](auto e, auto) {
    using E = decltype(e);
    if constexpr (sizeof(E) <= sizeof(float))
      launch(hash<E>, (groups + kHashWarps - 1) / kHashWarps, kHashWarps * kWarp,
             sizeof(float) * size_t(kHashWarps * kHashedPositions * (params.head_dim + 1)), params, rotations, buckets,
             position_bits, keys);
  });
  sort_keys(scratch, scratch_bytes, keys, sorted, count, position_bits + bits_for(segments * (buckets + 1)), stream);
  constexpr int kThreads = 256;
  launch(unpack_positions, (count + kThreads - 1) / kThreads, kThreads, size_t{0}, static_cast<const uint64_t*>(sorted), count,
         position_bits, params.order);
}

}  // namespace attn::cuda
