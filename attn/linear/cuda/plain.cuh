// Linear attention without tensor cores, forward and backward: for any dimension and element type, where the kernels of
// forward.cuh and backward.cuh cannot run.
//
// A block takes a head and goes through its positions one after the other. S [D,M] and Z [D], or R and Y, lie in global memory,
// in the accumulator dtype T (float32, or float64 for float64 elements); a thread owns a column m of the matrix, or a row d. A
// block owns this shared memory, in T:
//
//   query, key       [D] each              features of the position's query and key
//   value, gradient  [M] each              the position's row of v, and g′ = grad_output / normalizer
//   partial          [threads of a block]  for sums over the block
#pragma once

#include "attn/cuda/device.h"
#include "attn/linear/cuda/feature_map.cuh"
#include "attn/linear/cuda/params.h"

namespace attn::cuda {

// E is the tensors' element type, T the accumulator dtype.
template <class E, class T>
class PlainHead {
 public:
  __device__ PlainHead(const LinearParams& all_params, int64_t head_index) : params(all_params), index(head_index) {
    batch = index / params.heads, head = index % params.heads;
    query = reinterpret_cast<T*>(shared_memory()), key = query + params.head_dim, value = key + params.head_dim;
    gradient = value + params.value_dim, partial = gradient + params.value_dim;
    visible = params.key_lengths ? params.key_lengths[batch] : params.key_len;
  }
  static size_t shared_bytes(const LinearParams& p, int threads) {
    return sizeof(T) * (2 * size_t(p.head_dim) + 2 * size_t(p.value_dim) + size_t(threads));
  }

  template <class Function>
  __device__ void for_each(int count, const Function& f) const {
    for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) f(i);
  }
  __device__ E* row(const StridedTensor& x, int64_t position) const {
    return static_cast<E*>(x.data) + batch * x.batch_stride + head * x.head_stride + position * x.row_stride;
  }
  // Loads the features of a row of x (q or k), and a row of y times `factor`, into shared memory. Has a barrier before and after.
  __device__ void load(T* features, const StridedTensor& x, T* values, const StridedTensor& y, int64_t position, T factor) const {
    const E *from_x = row(x, position), *from_y = row(y, position);
    __syncthreads();
    for_each(params.head_dim, [&](int d) { features[d] = apply_feature_map(params.map, number(from_x[d])); });
    for_each(params.value_dim, [&](int m) { values[m] = number(from_y[m]) * factor; });
    __syncthreads();
  }
  // Σ f(i), i < count. Every thread gets the sum.
  template <class Function>
  __device__ T sum(int count, const Function& f) const {
    T own = 0;
    for_each(count, [&](int i) { own += f(i); });
    __syncthreads();
    partial[threadIdx.x] = own;
    __syncthreads();
    T all = 0;
    for (int i = 0; i < int(blockDim.x); ++i) all += partial[i];
    return all;
  }
  // matrix += features · valuesᵀ and vector += weight · features. Each thread adds to the columns, or to the rows, that it owns.
  __device__ void add(T* matrix, T* vector, const T* features, const T* values, T weight, bool by_columns) const {
    if (by_columns)
      for_each(params.value_dim, [&](int m) {
        for (int d = 0; d < params.head_dim; ++d) matrix[int64_t(d) * params.value_dim + m] += features[d] * values[m];
      });
    else
      for_each(params.head_dim, [&](int d) {
        for (int m = 0; m < params.value_dim; ++m) matrix[int64_t(d) * params.value_dim + m] += features[d] * values[m];
      });
    for_each(params.head_dim, [&](int d) { vector[d] += weight * features[d]; });
  }
  // Calls f(i) for each query i, when the keys that it sees are in S and Z.
  template <class Function>
  __device__ void for_each_query(T* s, T* z, bool by_columns, const Function& f) const {
    const auto add_key = [&](int64_t j) {
      if (j >= visible) return;
      load(key, params.k, value, params.v, j, 1);
      add(s, z, key, value, 1, by_columns);
    };
    if (!params.causal)
      for (int64_t j = 0; j < params.key_len; ++j) add_key(j);
    for (int64_t i = 0; i < params.query_len; ++i) {
      if (params.causal) add_key(i);
      f(i);
    }
  }
  // S or R of the head, and Z or Y, which follows it in memory.
  __device__ T* matrix_in(T* states) const {
    return states + index * (int64_t(params.head_dim) * params.value_dim + params.head_dim);
  }
  __device__ T* vector_after(T* matrix) const { return matrix + int64_t(params.head_dim) * params.value_dim; }
  __device__ T* normalizer(int64_t position) const {
    return static_cast<T*>(params.normalizer) + index * params.query_len + position;
  }
  __device__ T* grad_normalizer(int64_t position) const {
    return static_cast<T*>(params.grad_normalizer) + index * params.query_len + position;
  }
  __device__ static T number(E x) { return T(to_float(x)); }

  const LinearParams& params;
  int64_t index, batch, head, visible;
  T *query, *key, *value, *gradient, *partial;
};

template <class E, class T>
__global__ void plain_forward(LinearParams params, T* states) {
  const PlainHead<E, T> on(params, blockIdx.x);
  T *s = on.matrix_in(states), *z = on.vector_after(s);
  on.for_each_query(s, z, /*by_columns=*/true, [&](int64_t i) {
    __syncthreads();
    const E* q = on.row(params.q, i);
    on.for_each(params.head_dim, [&](int d) { on.query[d] = apply_feature_map(params.map, on.number(q[d])); });
    __syncthreads();
    const T total = on.sum(params.head_dim, [&](int d) { return on.query[d] * z[d]; }) + T(params.epsilon);
    if (threadIdx.x == 0 && params.normalizer) *on.normalizer(i) = total;
    E* to = on.row(params.output, i);
    on.for_each(params.value_dim, [&](int m) {
      T sum = 0;
      for (int d = 0; d < params.head_dim; ++d) sum += on.query[d] * s[int64_t(d) * params.value_dim + m];
      to[m] = from_number<E>(sum / total);
    });
  });
}

template <class E, class T>
__global__ void plain_backward_queries(LinearParams params, T* states) {
  const PlainHead<E, T> on(params, blockIdx.x);
  T *s = on.matrix_in(states), *z = on.vector_after(s);
  on.for_each_query(s, z, /*by_columns=*/false, [&](int64_t i) {
    const T inverse = 1 / *on.normalizer(i);
    on.load(on.query, params.q, on.gradient, params.grad_output, i, inverse);
    const auto grad_phi = [&](int d) {
      T sum = 0;
      for (int m = 0; m < params.value_dim; ++m) sum += s[int64_t(d) * params.value_dim + m] * on.gradient[m];
      return sum;
    };
    on.for_each(params.head_dim,
                [&](int d) { on.key[d] = grad_phi(d); });  // the key is in S already, so its shared memory is free
    const T delta = -inverse * on.sum(params.head_dim, [&](int d) { return on.query[d] * on.key[d]; });
    if (threadIdx.x == 0) *on.grad_normalizer(i) = delta;
    const E* x = on.row(params.q, i);
    E* to = on.row(params.grad_q, i);
    on.for_each(params.head_dim, [&](int d) {
      to[d] = from_number<E>(feature_map_gradient(params.map, on.number(x[d]), on.key[d] + delta * z[d]));
    });
  });
}

template <class E, class T>
__global__ void plain_backward_keys(LinearParams params, T* states) {
  const PlainHead<E, T> on(params, blockIdx.x);
  T *r = on.matrix_in(states), *y = on.vector_after(r);
  const auto add_query = [&](int64_t i) {
    on.load(on.query, params.q, on.gradient, params.grad_output, i, 1 / *on.normalizer(i));
    on.add(r, y, on.query, on.gradient, *on.grad_normalizer(i), /*by_columns=*/true);
    __syncthreads();
  };
  if (!params.causal)
    for (int64_t i = 0; i < params.query_len; ++i) add_query(i);
  for (int64_t j = params.key_len - 1; j >= 0; --j) {
    if (params.causal) add_query(j);
    const bool seen = j < on.visible;
    on.load(on.key, params.k, on.value, params.v, j, 1);
    E *grad_v = on.row(params.grad_v, j), *grad_k = on.row(params.grad_k, j);
    const E* x = on.row(params.k, j);
    on.for_each(params.value_dim, [&](int m) {
      T sum = 0;
      for (int d = 0; d < params.head_dim; ++d) sum += on.key[d] * r[int64_t(d) * params.value_dim + m];
      grad_v[m] = from_number<E>(seen ? sum : T(0));
    });
    on.for_each(params.head_dim, [&](int d) {
      T sum = y[d];
      for (int m = 0; m < params.value_dim; ++m) sum += r[int64_t(d) * params.value_dim + m] * on.value[m];
      grad_k[d] = from_number<E>(seen ? feature_map_gradient(params.map, on.number(x[d]), sum) : T(0));
    });
  }
}

}  // namespace attn::cuda
