// Linear attention without tensor cores, forward and backward: for any dimension and element type, where the kernels of
// forward.cuh and backward.cuh cannot run.
//
// A block processes a head, one position after the other. S [D,M] and Z [D], or R and Y, are in global memory, in the accumulator
// dtype T (float64 for float64 elements, float32 for others); each thread owns columns m of the matrix, or rows d. A block owns
// this shared memory, in T:
//
//   query, key       [D] each              features of the position's query and key
//   value, gradient  [M] each              the position's row of v, and g′ = grad_output / normalizer
//   partial          [threads of a block]  each thread's part of a sum over the block
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
    batch = index / params.heads;
    head = index % params.heads;
    query = reinterpret_cast<T*>(shared_memory());
    key = query + params.head_dim;
    value = key + params.head_dim;
    gradient = value + params.value_dim;
    partial = gradient + params.value_dim;
    visible = params.key_lengths ? params.key_lengths[batch] : params.key_len;
  }
  static size_t shared_bytes(const LinearParams& p, int threads) {
    return sizeof(T) * (2 * size_t(p.head_dim) + 2 * size_t(p.value_dim) + size_t(threads));
  }

  // Calls f(i) for i < count, distributed over the threads of the block.
  template <class Function>
  __device__ void for_each(int count, const Function& f) const {
    for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) f(i);
  }
  __device__ E* row(const StridedTensor& x, int64_t position) const {
    return static_cast<E*>(x.data) + batch * x.batch_stride + head * x.head_stride + position * x.row_stride;
  }
  // Loads the features of a row of x (q or k), and a row of y times `factor` minus `shift`, unless that is null, into shared
  // memory. Has a barrier before and after.
  __device__ void load(T* features, const StridedTensor& x, T* values, const StridedTensor& y, int64_t position, T factor,
                       const T* shift = nullptr) const {
    const E *from_x = row(x, position), *from_y = row(y, position);
    __syncthreads();
    for_each(params.head_dim, [&](int d) { features[d] = apply_feature_map(params.map, number(from_x[d])); });
    for_each(params.value_dim, [&](int m) { values[m] = number(from_y[m]) * factor - (shift != nullptr ? shift[m] : T(0)); });
    __syncthreads();
  }
  // Σ f(i) for i < count. Every thread gets the sum. Has a barrier before the threads read each other's parts.
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
  // matrix += features · valuesᵀ and vector += weight · features. Each thread adds to the columns or, if not by_columns, the rows
  // of the matrix that it owns.
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
  // Calls f(i) for each query i, after the keys that it sees have been added to S and Z.
  template <class Function>
  __device__ void for_each_query(T* s, T* z, bool by_columns, const Function& f) const {
    const auto add_key = [&](int64_t j) {
      if (j >= visible) return;
      load(key, params.k, value, params.v, j, 1, value_shift());
      add(s, z, key, value, 1, by_columns);
    };
    if (!params.causal)
      for (int64_t j = 0; j < params.key_len; ++j) add_key(j);
    for (int64_t i = 0; i < params.query_len; ++i) {
      if (params.causal) add_key(i);
      f(i);
    }
  }
  // The matrix of the head's state, S or R, and the vector that follows it in memory, Z or Y.
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
  // What the backward pass takes off the columns of v; null in the forward pass.
  __device__ const T* value_shift() const {
    const auto* all = static_cast<const T*>(params.value_shift);
    return all != nullptr ? all + index * params.value_shift_stride : nullptr;
  }
  __device__ static T number(E x) { return T(to_float(x)); }

  const LinearParams& params;
  int64_t index, batch, head, visible;
  T *query, *key, *value, *gradient, *partial;
};

template <class E, class T>
__global__ void plain_forward(LinearParams params, T* states) {
  const PlainHead<E, T> block(params, blockIdx.x);
  T *s = block.matrix_in(states), *z = block.vector_after(s);
  block.for_each_query(s, z, /*by_columns=*/true, [&](int64_t i) {
    __syncthreads();
    const E* q = block.row(params.q, i);
    block.for_each(params.head_dim, [&](int d) { block.query[d] = apply_feature_map(params.map, block.number(q[d])); });
    // Until the barriers of sum(), each thread reads only what it wrote.
    const T total = block.sum(params.head_dim, [&](int d) { return block.query[d] * z[d]; }) + T(params.epsilon);
    if (threadIdx.x == 0 && params.normalizer) *block.normalizer(i) = total;
    E* to = block.row(params.output, i);
    block.for_each(params.value_dim, [&](int m) {
      T sum = 0;
      for (int d = 0; d < params.head_dim; ++d) sum += block.query[d] * s[int64_t(d) * params.value_dim + m];
      to[m] = from_number<E>(sum / total);
    });
  });
}

template <class E, class T>
__global__ void plain_backward_queries(LinearParams params, T* states) {
  const PlainHead<E, T> block(params, blockIdx.x);
  T *s = block.matrix_in(states), *z = block.vector_after(s);
  block.for_each_query(s, z, /*by_columns=*/false, [&](int64_t i) {
    const T inverse = 1 / *block.normalizer(i);
    block.load(block.query, params.q, block.gradient, params.grad_output, i, inverse);
    const auto grad_phi = [&](int d) {
      T sum = 0;
      for (int m = 0; m < params.value_dim; ++m) sum += s[int64_t(d) * params.value_dim + m] * block.gradient[m];
      return sum;
    };
    // The key is already in S, so its shared memory is free.
    block.for_each(params.head_dim, [&](int d) { block.key[d] = grad_phi(d); });
    const T* shift = block.value_shift();
    const T of_shift = block.sum(params.value_dim, [&](int m) { return block.gradient[m] * shift[m]; });
    const T of_features = block.sum(params.head_dim, [&](int d) { return block.query[d] * block.key[d]; });
    const T delta = inverse * (T(params.epsilon) * of_shift - of_features);
    if (threadIdx.x == 0) *block.grad_normalizer(i) = delta;
    const E* x = block.row(params.q, i);
    E* to = block.row(params.grad_q, i);
    block.for_each(params.head_dim, [&](int d) {
      to[d] = from_number<E>(feature_map_gradient(params.map, block.number(x[d]), block.key[d] + delta * z[d]));
    });
  });
}

template <class E, class T>
__global__ void plain_backward_keys(LinearParams params, T* states) {
  const PlainHead<E, T> block(params, blockIdx.x);
  T *r = block.matrix_in(states), *y = block.vector_after(r);
  const auto add_query = [&](int64_t i) {
    block.load(block.query, params.q, block.gradient, params.grad_output, i, 1 / *block.normalizer(i));
    block.add(r, y, block.query, block.gradient, *block.grad_normalizer(i), /*by_columns=*/true);
  };
  if (!params.causal)
    for (int64_t i = 0; i < params.query_len; ++i) add_query(i);
  for (int64_t j = params.key_len - 1; j >= 0; --j) {
    if (params.causal) add_query(j);
    const bool seen = j < block.visible;
    block.load(block.key, params.k, block.value, params.v, j, 1, block.value_shift());
    E *grad_v = block.row(params.grad_v, j), *grad_k = block.row(params.grad_k, j);
    const E* x = block.row(params.k, j);
    block.for_each(params.value_dim, [&](int m) {
      T sum = 0;
      for (int d = 0; d < params.head_dim; ++d) sum += block.key[d] * r[int64_t(d) * params.value_dim + m];
      grad_v[m] = from_number<E>(seen ? sum : T(0));
    });
    block.for_each(params.head_dim, [&](int d) {
      T sum = y[d];
      for (int m = 0; m < params.value_dim; ++m) sum += r[int64_t(d) * params.value_dim + m] * block.value[m];
      grad_k[d] = from_number<E>(seen ? feature_map_gradient(params.map, block.number(x[d]), sum) : T(0));
    });
  }
}

}  // namespace attn::cuda
