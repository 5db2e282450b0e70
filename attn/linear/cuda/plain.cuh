// Linear attention on the GPU, plainly: a block a head, one position after the other, any dimension, float32 or float64 sums.
// What runs where linear.cuh has no kernel.
//
// S [D,M] (or R) lies in global memory, column m (or row d) with the thread that owns it; φ of the position in shared memory.
#pragma once

#include "attn/linear/cuda/call.h"
#include "attn/linear/cuda/map.cuh"

namespace attn::cuda {

// E: elements of the tensors, T: sums.
template <class E, class T>
class PlainHead {
 public:
  __device__ PlainHead(const LinearCall& call, int64_t head_index) : c(call), index(head_index) {
    batch = index / c.heads, head = index % c.heads;
    query = reinterpret_cast<T*>(shared_memory()), key = query + c.head_dim, value = key + c.head_dim;
    gradient = value + c.value_dim, partial = gradient + c.value_dim;
    visible = c.key_lengths ? c.key_lengths[batch] : c.key_len;
  }
  static size_t shared_bytes(const LinearCall& c, int threads) {
    return sizeof(T) * (2 * size_t(c.head_dim) + 2 * size_t(c.value_dim) + size_t(threads));
  }

  template <class Function>
  __device__ void for_each(int count, const Function& f) const {
    for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) f(i);
  }
  __device__ E* row(const Tensor4& x, int64_t position) const {
    return static_cast<E*>(x.data) + batch * x.batch_stride + head * x.head_stride + position * x.row_stride;
  }
  // The features of a row of q or k into shared memory, and the other row as it is times `factor`; barriers before and after.
  __device__ void load(T* features, const Tensor4& x, T* values, const Tensor4& y, int64_t position, T factor) const {
    const E *of_x = row(x, position), *of_y = row(y, position);
    __syncthreads();
    for_each(c.head_dim, [&](int d) { features[d] = apply_map(c.map, number(of_x[d])); });
    for_each(c.value_dim, [&](int m) { values[m] = number(of_y[m]) * factor; });
    __syncthreads();
  }
  // Σ f(i), i < count, the same in every thread.
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
  // matrix += features · valuesᵀ, vector += weight · features; by owners of columns, or of rows.
  __device__ void add(T* matrix, T* vector, const T* features, const T* values, T weight, bool by_columns) const {
    if (by_columns)
      for_each(c.value_dim, [&](int m) {
        for (int d = 0; d < c.head_dim; ++d) matrix[int64_t(d) * c.value_dim + m] += features[d] * values[m];
      });
    else
      for_each(c.head_dim, [&](int d) {
        for (int m = 0; m < c.value_dim; ++m) matrix[int64_t(d) * c.value_dim + m] += features[d] * values[m];
      });
    for_each(c.head_dim, [&](int d) { vector[d] += weight * features[d]; });
  }
  // f(i) for each query i; the keys that it sees are in S and Z by then.
  template <class Function>
  __device__ void for_each_query(T* s, T* z, bool by_columns, const Function& f) const {
    const auto take_in = [&](int64_t j) {
      if (j >= visible) return;
      load(key, c.k, value, c.v, j, 1);
      add(s, z, key, value, 1, by_columns);
    };
    if (!c.causal)
      for (int64_t j = 0; j < c.key_len; ++j) take_in(j);
    for (int64_t i = 0; i < c.query_len; ++i) {
      if (c.causal) take_in(i);
      f(i);
    }
  }
  // S or R of the head in memory that begins as zeros; behind it Z or Y.
  __device__ T* matrix_in(T* states) const { return states + index * (int64_t(c.head_dim) * c.value_dim + c.head_dim); }
  __device__ T* vector_behind(T* matrix) const { return matrix + int64_t(c.head_dim) * c.value_dim; }
  __device__ T* normalizer(int64_t position) const { return static_cast<T*>(c.normalizer) + index * c.query_len + position; }
  __device__ T* normalizer_gradient(int64_t position) const {
    return static_cast<T*>(c.normalizer_gradient) + index * c.query_len + position;
  }
  __device__ static T number(E x) { return T(to_float(x)); }

  const LinearCall& c;
  int64_t index, batch, head, visible;
  T *query, *key, *value, *gradient, *partial;
};

template <class E, class T>
__global__ void plain_forward(LinearCall c, T* states) {
  const PlainHead<E, T> on(c, blockIdx.x);
  T *s = on.matrix_in(states), *z = on.vector_behind(s);
  on.for_each_query(s, z, /*by_columns=*/true, [&](int64_t i) {
    __syncthreads();
    const E* q = on.row(c.q, i);
    on.for_each(c.head_dim, [&](int d) { on.query[d] = apply_map(c.map, on.number(q[d])); });
    __syncthreads();
    const T total = on.sum(c.head_dim, [&](int d) { return on.query[d] * z[d]; }) + T(c.epsilon);
    if (threadIdx.x == 0 && c.normalizer) *on.normalizer(i) = total;
    E* to = on.row(c.output, i);
    on.for_each(c.value_dim, [&](int m) {
      T sum = 0;
      for (int d = 0; d < c.head_dim; ++d) sum += on.query[d] * s[int64_t(d) * c.value_dim + m];
      to[m] = from_number<E>(sum / total);
    });
  });
}

template <class E, class T>
__global__ void plain_backward_queries(LinearCall c, T* states) {
  const PlainHead<E, T> on(c, blockIdx.x);
  T *s = on.matrix_in(states), *z = on.vector_behind(s);
  on.for_each_query(s, z, /*by_columns=*/false, [&](int64_t i) {
    const T inverse = 1 / *on.normalizer(i);
    on.load(on.query, c.q, on.gradient, c.gradient, i, inverse);
    const auto of_phi = [&](int d) {
      T sum = 0;
      for (int m = 0; m < c.value_dim; ++m) sum += s[int64_t(d) * c.value_dim + m] * on.gradient[m];
      return sum;
    };
    on.for_each(c.head_dim, [&](int d) { on.key[d] = of_phi(d); });  // the key is in S
    const T delta = -inverse * on.sum(c.head_dim, [&](int d) { return on.query[d] * on.key[d]; });
    if (threadIdx.x == 0) *on.normalizer_gradient(i) = delta;
    const E* x = on.row(c.q, i);
    E* to = on.row(c.q_gradient, i);
    on.for_each(c.head_dim,
                [&](int d) { to[d] = from_number<E>(map_gradient(c.map, on.number(x[d]), on.key[d] + delta * z[d])); });
  });
}

template <class E, class T>
__global__ void plain_backward_keys(LinearCall c, T* states) {
  const PlainHead<E, T> on(c, blockIdx.x);
  T *r = on.matrix_in(states), *y = on.vector_behind(r);
  const auto take_in = [&](int64_t i) {
    on.load(on.query, c.q, on.gradient, c.gradient, i, 1 / *on.normalizer(i));
    on.add(r, y, on.query, on.gradient, *on.normalizer_gradient(i), /*by_columns=*/true);
    __syncthreads();
  };
  if (!c.causal)
    for (int64_t i = 0; i < c.query_len; ++i) take_in(i);
  for (int64_t j = c.key_len - 1; j >= 0; --j) {
    if (c.causal) take_in(j);
    const bool seen = j < on.visible;
    on.load(on.key, c.k, on.value, c.v, j, 1);
    E *of_v = on.row(c.v_gradient, j), *of_k = on.row(c.k_gradient, j);
    const E* x = on.row(c.k, j);
    on.for_each(c.value_dim, [&](int m) {
      T sum = 0;
      for (int d = 0; d < c.head_dim; ++d) sum += on.key[d] * r[int64_t(d) * c.value_dim + m];
      of_v[m] = from_number<E>(seen ? sum : T(0));
    });
    on.for_each(c.head_dim, [&](int d) {
      T sum = y[d];
      for (int m = 0; m < c.value_dim; ++m) sum += r[int64_t(d) * c.value_dim + m] * on.value[m];
      of_k[d] = from_number<E>(seen ? map_gradient(c.map, on.number(x[d]), sum) : T(0));
    });
  }
}

}  // namespace attn::cuda
