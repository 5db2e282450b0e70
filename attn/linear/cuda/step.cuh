// A decoding step of linear attention on the GPU, any dimension: k and v into S and Z, in place, then the output for q.
//
// A block a head, a warp a block of 8 columns of S: lane l has column l % 8 and of the rows every fourth from l / 8 on, so that a
// warp reads whole sectors of 32 bytes. It has 16 rows a lane on the way at a time, the first of them before φ is known.
#pragma once

#include "attn/linear/cuda/call.h"
#include "attn/linear/cuda/map.cuh"

namespace attn::cuda {

constexpr int kStepColumns = 8;  // of a warp
constexpr int kStepWarps = 16;   // of a block, at most

template <class T>
size_t step_shared_bytes(int head_dim) {
  return sizeof(T) * 3 * size_t(head_dim);
}

// E: elements of the tensors, T: sums. S [heads, D, M] and Z [heads, D] lie close.
template <class E, class T>
__global__ void __launch_bounds__(kStepWarps* kWarp) step(LinearCall c, T* s, T* z) {
  constexpr int kSlices = kWarp / kStepColumns, kRows = 16;
  const int64_t index = blockIdx.x;
  const int head_dim = c.head_dim, value_dim = c.value_dim, slice = lane() / kStepColumns;
  s += index * head_dim * value_dim, z += index * head_dim;
  const auto row = [&](const Tensor4& x) {
    return static_cast<E*>(x.data) + index / c.heads * x.batch_stride + index % c.heads * x.head_stride;
  };
  const E *q = row(c.q), *k = row(c.k), *v = row(c.v);
  E* to = row(c.output);
  auto *query = reinterpret_cast<T*>(shared_memory()), *key = query + head_dim, *sums = key + head_dim;

  T x[kRows], value = 0;
  const auto load = [&](int column, int first) {
    if (first == 0) value = column < value_dim ? T(to_float(v[column])) : T(0);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int d = first + r * kSlices + slice;
      x[r] = d < head_dim && column < value_dim ? s[int64_t(d) * value_dim + column] : T(0);
    }
  };
  const int begin = warp() * kStepColumns, columns_of_block = int(blockDim.x) / kWarp * kStepColumns;
  load(begin + lane() % kStepColumns, 0);
  for (int d = thread(); d < head_dim; d += int(blockDim.x)) {
    query[d] = apply_map(c.map, T(to_float(q[d]))), key[d] = apply_map(c.map, T(to_float(k[d])));
    sums[d] = z[d] += key[d];
  }
  __syncthreads();
  T total = 0;
  for (int d = lane(); d < head_dim; d += kWarp) total += query[d] * sums[d];
  total = sum_over_lanes(total) + T(c.epsilon);

  for (int of_warp = begin; of_warp < value_dim; of_warp += columns_of_block) {
    const int column = of_warp + lane() % kStepColumns;
    T sum = 0;
    for (int first = 0; first < head_dim; first += kRows * kSlices) {
      if (of_warp > begin || first > 0) load(column, first);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int d = first + r * kSlices + slice;
        if (d >= head_dim || column >= value_dim) continue;
        const T now = x[r] + key[d] * value;
        s[int64_t(d) * value_dim + column] = now;
        sum += query[d] * now;
      }
    }
#pragma unroll
    for (int bits = kStepColumns; bits < kWarp; bits *= 2) sum += __shfl_xor_sync(kAllLanes, sum, bits);
    if (slice == 0 && column < value_dim) to[column] = from_number<E>(sum / total);
  }
}

}  // namespace attn::cuda
