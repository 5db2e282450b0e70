// One decoding step of linear attention, for any dimension and element type: adds the token's k and v to S [heads, D, M] and
// Z [heads, D], in place, and writes the output [heads, M] for its q. `heads` is batch·heads; S and Z are contiguous, in the
// accumulator dtype.
//
// A block processes a head, and each of its warps 8 columns of S at a time. Lane l processes column l % 8 and every fourth row,
// beginning with row l / 8, so that a warp reads whole sectors of 32 bytes. A lane loads 16 rows at a time, the first 16 before
// the features are computed. A block owns this shared memory, in the accumulator dtype:
//
//   query, key  [D] each  features of q and k
//   sums        [D]       Z after the token's key has been added
#pragma once

#include "attn/cuda/device.h"
#include "attn/linear/cuda/feature_map.cuh"
#include "attn/linear/cuda/params.h"

namespace attn::cuda {

constexpr int kStepColumns = 8;    // columns of S that a warp processes at a time
constexpr int kMaxStepWarps = 16;  // warps in a block

template <class T>
size_t step_shared_bytes(int head_dim) {
  return sizeof(T) * 3 * size_t(head_dim);
}

// E is the tensors' element type, T the accumulator dtype.
template <class E, class T>
__global__ void __launch_bounds__(kMaxStepWarps* kWarp) step(LinearParams params, T* s, T* z) {
  constexpr int kSlices = kWarp / kStepColumns, kRows = 16;
  const int64_t index = blockIdx.x;
  const int head_dim = params.head_dim, value_dim = params.value_dim, slice = lane() / kStepColumns;
  s += index * head_dim * value_dim;
  z += index * head_dim;
  const auto row = [&](const StridedTensor& x) {
    return static_cast<E*>(x.data) + index / params.heads * x.batch_stride + index % params.heads * x.head_stride;
  };
  const E *q = row(params.q), *k = row(params.k), *v = row(params.v);
  E* to = row(params.output);
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
    query[d] = apply_feature_map(params.map, T(to_float(q[d])));
    key[d] = apply_feature_map(params.map, T(to_float(k[d])));
    sums[d] = z[d] += key[d];
  }
  __syncthreads();
  T total = 0;
  for (int d = lane(); d < head_dim; d += kWarp) total += query[d] * sums[d];
  total = sum_over_lanes(total) + T(params.epsilon);

  for (int first_column = begin; first_column < value_dim; first_column += columns_of_block) {
    const int column = first_column + lane() % kStepColumns;
    T sum = 0;
    for (int first = 0; first < head_dim; first += kRows * kSlices) {
      if (first_column > begin || first > 0) load(column, first);
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
