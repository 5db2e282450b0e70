// The vector kernels of the decoder. avx512.cpp and avx2.cpp compile them, each for its own vectors V.
//
// A product reads the weights where torch::nn::Linear stores them: each output is a dot product of a row of the weights with a
// row of x. A tile computes it for kOutputs rows of the weights and kBatch rows of x, whose sums stay in registers. One sequence
// needs every weight once, so it is limited by the memory, and prefetches. A batch needs them more than once. Its rows of x are
// divided into blocks that fit the first-level cache together with the weights of a tile.
//
// Activations by columns are multiplied as matrices, [outputs, depth] · [depth, batch], by attn/cpu/products.h.
#pragma once

#include "attn/cpu/kernel_table.h"
#include "attn/cpu/products.h"
#include "attn/cpu/simd.h"
#include "experiments/decoding/cpu/kernels.h"

namespace experiments {
namespace {

template <class V>
class DecoderTable {
  using F = typename V::F;
  static constexpr int kOutputs = 4;
  static constexpr int kBatch = V::kLanes == 16 ? 6 : 2;  // 4·6 sums leave 8 of 32 registers, 4·2 leave 8 of 16
  static constexpr int64_t kBlock = 6144;                 // numbers of x in a block: 24 KiB
  static constexpr int64_t kAhead = 1024;                 // how many numbers ahead one sequence prefetches the weights

 public:
  static constexpr DecoderKernels kernels(const char* name) {
    return {name, linear, linear_columns, layer_norm, layer_norm_columns, transpose};
  }

  static void linear(const LinearLayerParams& p, int64_t begin, int64_t end) {
    if (p.batch == 1) return outputs<true>(p, 0, 1, begin, end);
    const int64_t fitting = kBlock / p.depth / kBatch * kBatch, block = fitting < kBatch ? kBatch : fitting;
    for (int64_t b = 0; b < p.batch; b += block) outputs<false>(p, b, p.batch - b < block ? p.batch : b + block, begin, end);
  }

  static void linear_columns(const LinearLayerParams& p, int64_t begin, int64_t end) {
    for_each_vector(p, begin, end, [&](int64_t o, int64_t b) {
      const F bias = V::all(p.bias[o]);
      return p.residual ? V::add(V::load(p.residual + o * p.residual_stride + b), bias) : bias;
    });
    attn::cpu::product<V, true, /*kPrefetch=*/true>(p.weight + begin * p.depth, p.depth, 1, p.x, p.x_stride, end - begin, p.depth,
                                                    p.batch, p.y + begin * p.y_stride, p.y_stride);
    if (p.relu)
      for_each_vector(p, begin, end, [&](int64_t o, int64_t b) { return V::max(V::zero(), V::load(p.y + o * p.y_stride + b)); });
  }

  static void layer_norm(const NormParams& p, int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) normalise_row(p, p.x + b * p.stride, p.y + b * p.stride);
  }

  static void layer_norm_columns(const NormParams& p, int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b += V::kLanes) {
      const float* const x = p.x + b;
      float* const y = p.y + b;
      F sum = V::zero(), squares = V::zero();
      for (int64_t i = 0; i < p.width; ++i) sum = V::add(sum, V::load(x + i * p.stride));
      const F mean = V::mul(sum, V::all(1 / float(p.width)));
      for (int64_t i = 0; i < p.width; ++i) {
        const F centred = V::sub(V::load(x + i * p.stride), mean);
        squares = V::fma(centred, centred, squares);
      }
      const F variance = V::fma(squares, V::all(1 / float(p.width)), V::all(p.epsilon));
      const F factor = V::div(V::all(1), V::sqrt(variance));
      for (int64_t i = 0; i < p.width; ++i) {
        const F normal = V::mul(V::sub(V::load(x + i * p.stride), mean), factor);
        V::store(y + i * p.stride, V::fma(normal, V::all(p.weight[i]), V::all(p.bias[i])));
      }
    }
  }

  static void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
    const auto whole_rows = rows / kDecoderColumns * kDecoderColumns, whole_columns = columns / kDecoderColumns * kDecoderColumns;
    attn::cpu::transpose<V>(from, from_stride, whole_rows, whole_columns, to, to_stride);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }

 private:
  static typename V::Mask lanes(int64_t rest) { return V::first(rest < V::kLanes ? rest : int64_t{V::kLanes}); }

  static void normalise_row(const NormParams& p, const float* x, float* y) {
    F sum = V::zero(), squares = V::zero();
    for (int64_t i = 0; i < p.width; i += V::kLanes) sum = V::add(sum, V::load(x + i, lanes(p.width - i)));
    const F mean = V::all(V::sum(sum) / float(p.width));
    for (int64_t i = 0; i < p.width; i += V::kLanes) {
      const auto mask = lanes(p.width - i);
      const F centred = V::keep(V::sub(V::load(x + i, mask), mean), mask);
      squares = V::fma(centred, centred, squares);
    }
    const F factor = V::all(1 / __builtin_sqrtf(V::sum(squares) / float(p.width) + p.epsilon));
    for (int64_t i = 0; i < p.width; i += V::kLanes) {
      const auto mask = lanes(p.width - i);
      const F normal = V::mul(V::sub(V::load(x + i, mask), mean), factor);
      V::store(y + i, V::fma(normal, V::load(p.weight + i, mask), V::load(p.bias + i, mask)), mask);
    }
  }

  // y = number(o, b) for each vector of the outputs begin ≤ o < end by columns.
  template <class Number>
  static void for_each_vector(const LinearLayerParams& p, int64_t begin, int64_t end, const Number& number) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t b = 0; b < p.batch; b += V::kLanes) V::store(p.y + o * p.y_stride + b, number(o, b));
  }

  // All outputs begin ≤ o < end for the rows first ≤ b < last of x.
  template <bool kPrefetch>
  static void outputs(const LinearLayerParams& p, int64_t first, int64_t last, int64_t begin, int64_t end) {
    int64_t o = begin;
    for (; o + kOutputs <= end; o += kOutputs) rows<kOutputs, kPrefetch>(p, first, last, o);
    for (; o < end; ++o) rows<1, kPrefetch>(p, first, last, o);
  }

  template <int kRows, bool kPrefetch>
  static void rows(const LinearLayerParams& p, int64_t first, int64_t last, int64_t o) {
    if constexpr (kPrefetch) return tile<kRows, 1, true>(p, first, o);
    int64_t b = first;
    // The first tile fetches the weights of the next one.
    if (b == 0 && kBatch <= last) tile<kRows, kBatch, true>(p, b, o), b += kBatch;
    for (; b + kBatch <= last; b += kBatch) tile<kRows, kBatch, false>(p, b, o);
    rest<kRows, kBatch - 1>(p, b, last, o);
  }

  // The tile of the last rows of x, of which there are at most kColumns.
  template <int kRows, int kColumns>
  static void rest(const LinearLayerParams& p, int64_t b, int64_t last, int64_t o) {
    if constexpr (kColumns > 0) {
      if (last - b == kColumns) tile<kRows, kColumns, false>(p, b, o);
      else rest<kRows, kColumns - 1>(p, b, last, o);
    }
  }

  template <int kRows, int kColumns, bool kPrefetch>
  static void tile(const LinearLayerParams& p, int64_t b, int64_t o) {
    F sum[kRows][kColumns];
    for (auto& row : sum)
      for (auto& x : row) x = V::zero();
    const float *const x = p.x + b * p.x_stride, *const weight = p.weight + o * p.depth;
    int64_t i = 0;
    for (; i + V::kLanes <= p.depth; i += V::kLanes) {
      F w[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        w[r] = V::load(weight + r * p.depth + i);
        if constexpr (kPrefetch)
          if (i % 16 == 0) __builtin_prefetch(weight + r * p.depth + i + kRows * p.depth + kAhead);
      }
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        const F factor = V::load(x + c * p.x_stride + i);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r][c] = V::fma(w[r], factor, sum[r][c]);
      }
    }
    if (i < p.depth) {
      const auto mask = lanes(p.depth - i);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
          sum[r][c] = V::fma(V::load(weight + r * p.depth + i, mask), V::load(x + c * p.x_stride + i, mask), sum[r][c]);
    }
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      float* const y = p.y + (b + c) * p.y_stride + o;
      const float* const residual = p.residual ? p.residual + (b + c) * p.residual_stride + o : nullptr;
      float totals[kRows];
      if constexpr (kRows == 4) V::store_sums(totals, sum[0][c], sum[1][c], sum[2][c], sum[3][c], 1);
      else totals[0] = V::sum(sum[0][c]);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        float total = totals[r] + p.bias[o + r];
        if (residual) total += residual[r];
        y[r] = p.relu && total < 0 ? 0 : total;  // a NaN stays NaN
      }
    }
  }
};

}  // namespace
}  // namespace experiments
