#ifndef ATTN_CUDA_EMULATION
#include <cub/device/device_radix_sort.cuh>
#endif

#include "attn/cuda/launch.cuh"
#include "attn/lsh/cuda/launch.cuh"
#include "attn/cuda/run.h"

namespace attn::cuda {

#ifdef ATTN_CUDA_EMULATION
size_t sort_bytes(int64_t) { return 1; }
void sort_keys(void*, size_t, const uint64_t* from, uint64_t* to, int64_t count, int bits, cudaStream_t) {
  emulation::sort_by_lowest_bits(from, to, count, bits);
}
#else
size_t sort_bytes(int64_t count) {
  size_t bytes = 0;
  C10_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, static_cast<const uint64_t*>(nullptr),
                                                static_cast<uint64_t*>(nullptr), count));
  return bytes;
}
void sort_keys(void* scratch, size_t scratch_bytes, const uint64_t* from, uint64_t* to, int64_t count, int bits,
               cudaStream_t stream) {
  C10_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(scratch, scratch_bytes, from, to, count, 0, bits, stream));
}
#endif

void run_lsh_sort(const LshCall& call, const LshRotations& rotations, ElementKind element, uint64_t* keys, uint64_t* sorted,
                  void* scratch, size_t scratch_bytes, cudaStream_t stream) {
  const OnStream launch(stream);
  const auto sort = [&](const uint64_t* from, uint64_t* to, int64_t count, int bits) {
    sort_keys(scratch, scratch_bytes, from, to, count, bits, stream);
  };
  switch (element) {
    case ElementKind::float32: return sort_positions<float>(call, rotations, keys, sorted, launch, sort);
    case ElementKind::bfloat16: return sort_positions<BFloat16>(call, rotations, keys, sorted, launch, sort);
    case ElementKind::float16: return sort_positions<Half>(call, rotations, keys, sorted, launch, sort);
    case ElementKind::float64: return;  // not computed here
  }
}

}  // namespace attn::cuda
