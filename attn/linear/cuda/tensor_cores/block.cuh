// LinearBlock: what every tensor-core kernel of linear attention uses, that is the shared memory of a thread block, its loads and
// stores, and products of a chunk.
//
// A block processes one (batch entry, head) and one split of its positions, in chunks of kRows positions (64, or 32 for
// float32 tiles of 128 columns). LinearShape says what a warp computes. Products are computed by the tensor cores and accumulated
// in float32. A state stays in accumulators while the block goes over the chunks: each warp owns some of its rows and columns.
// After each chunk the warps write it to shared memory, rounded as a factor of products is. A block owns this shared memory,
// where kDim is the tile dimension that head_dim and value_dim are padded to:
//
//   addresses  [kArrays]                 where the block's part of each array begins; there are too few registers for them
//   tiles      [kBuffers][kRows, kDim]   rows of φ(q), φ(k), v or g′ in S::Tile (bfloat16 or float32); 2 to 4 tiles, by kernel
//   states     [kStateBuffers]           S = Σ φ(k)vᵀ or another state in S::Tile: by rows in 16 bits, by columns in float32
//   numbers    [count]                   float32, by kernel
//
// As in attn/linear/cpu/kernels.h, g′ = grad_output / normalizer, and δ is the gradient of the normalizer. In the backward pass v
// and δ are the v′ and δ′ of attn/linear/value_shift.h.
#pragma once

#include "attn/linear/cuda/feature_map.cuh"
#include "attn/linear/cuda/params.h"
#include "attn/linear/cuda/tensor_cores/shape.cuh"

namespace attn::cuda {

// The size of a block's shared memory with this many row tiles, states and float32 numbers.
template <class S>
constexpr size_t linear_shared_bytes(int tiles, int states, int numbers) {
  using L = LinearShape<S>;
  return L::kAddressBytes + tiles * L::kBuffers * L::kTileBytes + states * L::kStateBytes + sizeof(float) * numbers;
}

// The arrays of a call of which every block reads or writes a part.
enum Array { kQ, kK, kV, kOutput, kGradOutput, kGradQ, kGradK, kGradV, kNormalizer, kGradNormalizer, kArrays };

// The part of a state that a warp owns.
template <class S>
struct OwnState {
  using L = LinearShape<S>;
  Accumulator matrix[L::kStateTiles][L::kColumnTiles];
  // The vector that belongs to the matrix, Z or Y. The entry of a row is the sum of the row's two numbers in any lane.
  Accumulator vector[L::kStateTiles];
};

template <class S>
class LinearBlock {
 public:
  using L = LinearShape<S>;
  using E = typename S::E;
  using Tile = typename S::Tile;
  using F = typename S::F;
  static constexpr int kStride = L::kStride;
  static_assert(!L::kSixteenBits || std::is_same<E, BFloat16>::value, "16-bit tiles are computed as pairs of bfloat16");

  // 16 bytes of a row of a tensor, and the same entries in a tile.
  static constexpr int kVector = 16 / int(sizeof(E)), kRowVectors = L::kDim / kVector;
  static constexpr int kRoundRows = L::kThreads / kRowVectors < L::kRows ? L::kThreads / kRowVectors : L::kRows;
  static constexpr int kRounds = L::kRows / kRoundRows;
  static_assert(kRoundRows * kRowVectors == L::kThreads, "a round of loads uses every thread");
  struct alignas(16) Vector {
    uint32_t word[4];
  };
  struct alignas(16) TileVector {
    uint32_t word[4 * sizeof(Tile) / sizeof(E)];
  };

  // All threads of the block must call it, because it has a barrier. The index of the block is (head − first_head) · splits +
  // split, where heads are counted over all batch entries.
  __device__ explicit LinearBlock(const LinearParams& all_params)
      : params(all_params),
        map(all_params.map),
        split(int64_t(blockIdx.x) % all_params.splits),
        index(all_params.first_head + int64_t(blockIdx.x) / all_params.splits),
        batch(index / all_params.heads),
        head(index % all_params.heads) {
    wait_for_previous_kernel();
    // Blocks differ in which warp processes which rows, because a chunk's later rows take longer, and warps with the same number
    // share a scheduler.
    row_group = int((warp() + blockIdx.x) % L::kRowGroups);
    column = L::kColumnGroups == 1 ? 0 : warp() / L::kRowGroups * L::kColumns;
    own_thread = thread();
    base = split * params.split_len;
    const int64_t keys = params.key_lengths ? params.key_lengths[batch] : params.key_len;
    visible = positions(keys < params.key_len ? keys : params.key_len);
    if (thread() == 0) {
      for (int array = kQ; array <= kGradV; ++array) {
        const StridedTensor& x = tensor(Array(array));
        const int64_t offset = batch * x.batch_stride + head * x.head_stride + base * x.row_stride;
        addresses()[array] = reinterpret_cast<uintptr_t>(x.data) + uintptr_t(offset * int64_t(sizeof(E)));
      }
      const uintptr_t first_query = uintptr_t(index * params.query_len + base) * sizeof(float);
      addresses()[kNormalizer] = reinterpret_cast<uintptr_t>(params.normalizer) + first_query;
      addresses()[kGradNormalizer] = reinterpret_cast<uintptr_t>(params.grad_normalizer) + first_query;
    }
    __syncthreads();
  }

  // Must be called for each chunk. Addresses that depend on the warp's rows take more registers than there are, if they are kept.
  __device__ void begin_chunk() {
    row_group = opaque(row_group);
    if constexpr (L::kDim == 128) own_thread = opaque(own_thread);
  }

  // ---------------------------------------------------------- shared memory and positions

  __device__ static Tile* tile(int i, int buffer = 0) {
    return reinterpret_cast<Tile*>(shared_memory() + L::kAddressBytes + (i * L::kBuffers + buffer) * L::kTileBytes);
  }
  // State i of a kernel that has this number of tiles.
  __device__ static Tile* state(int tiles, int i) {
    return reinterpret_cast<Tile*>(shared_memory() + L::kAddressBytes + tiles * L::kBuffers * L::kTileBytes + i * L::kStateBytes);
  }
  __device__ static float* numbers(int tiles, int states) { return reinterpret_cast<float*>(state(tiles, states)); }

  // How many positions of a sequence of this length are in the split. Positions are counted from the first one of the split on.
  __device__ int positions(int64_t length) const {
    const int64_t count = length - base;
    return count < 0 ? 0 : int(count < params.split_len ? count : params.split_len);
  }

  // The warp's first row of a tile.
  template <class T>
  __device__ T* own_rows(T* tile) const {
    return tile + row_group * 16 * kStride;
  }
  // The warp owns kStateRows rows of a state from this one on, and the same columns, if there are such rows.
  __device__ int state_row() const { return row_group * L::kStateRows; }
  __device__ bool owns_state() const { return !L::kSomeOwnNoState || state_row() < L::kDim; }
  // The row of a tile that holds x[i] of the warp's accumulators, and the column for those of column tile t.
  __device__ int row_of(int i) const { return row_group * 16 + Accumulator::row(i); }
  __device__ int column_of(int t, int i) const { return column + t * 8 + Accumulator::column(i); }

  __device__ const StridedTensor& tensor(Array array) const {
    switch (array) {
      case kQ: return params.q;
      case kK: return params.k;
      case kV: return params.v;
      case kOutput: return params.output;
      case kGradOutput: return params.grad_output;
      case kGradQ: return params.grad_q;
      case kGradK: return params.grad_k;
      default: return params.grad_v;
    }
  }
  // The columns of a tensor.
  __device__ int dim(Array array) const {
    return array == kQ || array == kK || array == kGradQ || array == kGradK ? params.head_dim : params.value_dim;
  }
  // The rows of a tensor, from a column on. at() counts them from the split's first position; with_aligned_rows() sees to it that
  // the bytes from one row to the next fit an int.
  class Rows {
   public:
    __device__ Rows(uintptr_t first, int row_bytes) : first_(first), row_bytes_(row_bytes) {}
    __device__ E* at(int row) const { return global_pointer<E>(advance(first_, row, row_bytes_)); }

   private:
    uintptr_t first_;
    int row_bytes_;
  };
  __device__ Rows rows(Array array, int first_column) const {
    return {advance(addresses()[array], first_column, sizeof(E)), int(tensor(array).row_stride) * int(sizeof(E))};
  }
  // The normalizer of a query, or its gradient. Queries are counted from the split's first one.
  __device__ float* of_query(Array array, int query) const {
    return global_pointer<float>(advance(addresses()[array], query, sizeof(float)));
  }

  // ---------------------------------------------------------- loads

  // A tile is filled in two steps: begin_load(), and after wait_for_copies() finish_load() with the same arguments. After that a
  // barrier is needed. The tile's rows are the positions of a tensor that begin with `first`. Rows of positions from `limit` on,
  // and columns from dim(array) on, become zeros. Each thread fills the same entries in both steps.
  __device__ void begin_load(Tile* to, Array array, int first, int limit) const {
    if constexpr (L::kAsync) {
      const Rows from = rows(array, vector_column());
      Tile* own = to + vector_row(0) * kStride + vector_column();
      const int rest = vector_column() < dim(array) ? limit - first : 0;
#pragma unroll
      for (int round = 0; round < kRounds; ++round)
        copy_async(own + round * kRoundRows * kStride, from.at(first + vector_row(round)), vector_row(round) < rest);
    }
  }
  // Entry x of the thread's vectors becomes f(x, round, its place in the vector). For tiles of float32.
  template <class Function>
  __device__ void finish_load(Tile* to, Array array, int first, int limit, const Function& f) const {
    finish_vectors(to, array, first, limit, [&](const Vector& in, int round) {
      TileVector out;
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        float entry;
        if constexpr (sizeof(E) == 4) entry = bits_to_float(in.word[e]);
        else entry = e % 2 == 0 ? first_of_pair<E>(in.word[e / 2]) : second_of_pair<E>(in.word[e / 2]);
        out.word[e] = float_to_bits(F::round_to_tile(f(entry, round, e)));
      }
      return out;
    });
  }
  // The same for tiles of bfloat16: pair w of the thread's vectors becomes f(pair, round, w).
  template <class Function>
  __device__ void finish_pairs(Tile* to, Array array, int first, int limit, const Function& f) const {
    finish_vectors(to, array, first, limit, [&](const Vector& in, int round) {
      TileVector out;
#pragma unroll
      for (int w = 0; w < 4; ++w) out.word[w] = f(in.word[w], round, w);
      return out;
    });
  }
  // Makes φ of the rows of q or k.
  __device__ void finish_features(Tile* to, Array array, int first, int limit) const {
    if constexpr (L::kSixteenBits) {
      finish_pairs(to, array, first, limit, [&](uint32_t pair, int, int) { return map.fast_pair(pair); });
    } else {
      finish_load(to, array, first, limit, [&](float entry, int, int) {
        if constexpr (S::kPrecision == Precision::tf32_three) return map.exact(entry);
        else return map.fast(entry);
      });
    }
  }
  // v is not changed in the forward pass. In the backward pass, kShifted, value_shift() is taken off.
  template <bool kShifted>
  __device__ void finish_values(Tile* to, int first, int limit) const {
    if constexpr (kShifted) {
      struct alignas(16) Four {
        float x[4];
      };
      Four shift[kVector / 4];
#pragma unroll
      for (int i = 0; i < kVector / 4; ++i) shift[i] = *reinterpret_cast<const Four*>(value_shift() + vector_column() + 4 * i);
      if constexpr (L::kSixteenBits) {
        // implementation.cpp rounds the shift to bfloat16.
        uint32_t pairs[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) pairs[w] = pair_of<E>(shift[w / 2].x[w % 2 * 2], shift[w / 2].x[w % 2 * 2 + 1]);
        finish_pairs(to, kV, first, limit, [&](uint32_t pair, int, int w) { return subtract_pairs(pair, pairs[w]); });
      } else {
        finish_load(to, kV, first, limit, [&](float entry, int, int e) { return entry - shift[e / 4].x[e % 4]; });
      }
    } else if constexpr (!L::kAsync || S::kPrecision == Precision::tf32) {
      finish_load(to, kV, first, limit, [](float entry, int, int) { return entry; });
    }
  }
  // What the backward pass takes off the columns of v; null in the forward pass.
  __device__ const float* value_shift() const {
    const auto* all = static_cast<const float*>(params.value_shift);
    return all != nullptr ? all + index * params.value_shift_stride : nullptr;
  }
  // The rows of a tile that the thread loads have these reciprocals of normalizers; zeros from `limit` on. They are read a chunk
  // ahead.
  struct Reciprocals {
    float x[LinearBlock::kRounds];
  };
  __device__ void load(Reciprocals& reciprocals, int first, int limit) const {
    const float* from = of_query(kNormalizer, first + vector_row(0));
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      reciprocals.x[round] = first + vector_row(round) < limit ? fast_reciprocal(from[round * kRoundRows]) : 0;
  }
  // Makes g′ = grad_output / normalizer, and writes the reciprocals to `to_rows` [kRows] unless it is null.
  __device__ void finish_scaled_gradients(Tile* to, int first, int limit, const Reciprocals& reciprocals, float* to_rows) const {
    if constexpr (L::kSixteenBits) {
      // A reciprocal is the sum of two bfloat16 numbers, with an error of 2⁻¹⁷.
      uint32_t rounded[kRounds], remainder[kRounds];
#pragma unroll
      for (int round = 0; round < kRounds; ++round) {
        const float x = reciprocals.x[round];
        rounded[round] = pair_of<E>(x, x);
        const float rest = x - second_of_pair<E>(rounded[round]);
        remainder[round] = pair_of<E>(rest, rest);
      }
      finish_pairs(to, kGradOutput, first, limit, [&](uint32_t pair, int round, int) {
        return multiply_add_pairs(pair, rounded[round], multiply_pairs(pair, remainder[round]));
      });
    } else {
      finish_load(to, kGradOutput, first, limit, [&](float entry, int round, int) { return entry * reciprocals.x[round]; });
    }
    if (to_rows == nullptr || vector_column() != 0) return;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) to_rows[vector_row(round)] = reciprocals.x[round];
  }

  // δ of the position `first` + thread(), for threads of the first kRows; zero from `limit` on. It is read a chunk ahead.
  __device__ float grad_normalizer(int first, int limit) const {
    return thread() < L::kRows && first + thread() < limit ? *of_query(kGradNormalizer, first + thread()) : 0;
  }

  // ---------------------------------------------------------- products of a chunk

  // The warp's rows of the left factor of a product, in the natural order of depth. They stay in registers where there are
  // enough.
  class Left {
   public:
    __device__ explicit Left(const Tile* own_rows) : rows_(own_rows) {
      if constexpr (kHeld) {
#pragma unroll
        for (int k = 0; k < L::kSteps; ++k) held_[k] = F::load_a_of_rows(rows_ + k * F::kDepth, kStride);
      }
    }
    __device__ typename F::A step(int k) const {
      if constexpr (kHeld) return held_[k];
      else return F::load_a_of_rows(rows_ + k * F::kDepth, kStride);
    }
    // The same in the order of the functions that end in _of_columns.
    __device__ typename F::A step_for_columns(int k) const {
      if constexpr (kHeld) return held_[k];
      else return F::load_a_of_rows_for_columns(rows_ + k * F::kDepth, kStride);
    }

   private:
    static constexpr bool kHeld = L::kSixteenBits && L::kSteps <= 4;
    const Tile* rows_;
    typename F::A held_[kHeld ? L::kSteps : 1];
  };

  // out += weights · values for the warp's 16 rows and its columns, where the weights are the scores of `left` with the rows of
  // `right` that a row of the chunk sees: those up to its own row or, if kLater, those from its own row on. The weight of row c
  // of `right` is start(c) + its score. If kTotals, the sum of the weights of a row is added to both rows of `total`, in even
  // columns. `out` must be zeros before. Returns whether it multiplied pair by pair, because of a value that is not finite.
  template <bool kLater, bool kTotals, class Start>
  __device__ bool multiply_seen(Accumulator (&out)[L::kColumnTiles], Accumulator& total, const Left& left, const Tile* left_tile,
                                const Tile* right, const Tile* values, const Start& start) const {
    // The 16 rows of `right` that belong to the warp's own rows come first, because a row sees only some of them.
    Accumulator scores[2];
    score(scores, left, own_rows(right), row_group * 16, start);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int difference = Accumulator::column(i) - Accumulator::row(i) % 8;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        const int half = i / 2;
        const bool seen = t == half ? (kLater ? difference >= 0 : difference <= 0) : kLater ? t > half : t < half;
        if (!seen) scores[t].x[i] = 0;
      }
    }
    weigh<kTotals>(out, total, scores, own_rows(values));
    // A value that is not finite makes the results of all 16 rows NaN, also of those that do not see it. The first or the last
    // row sees no value that any other row does not see.
    float sum = 0;
#pragma unroll
    for (int t = 0; t < L::kColumnTiles; ++t) sum += out[t].x[kLater ? 2 : 0] + out[t].x[kLater ? 3 : 1];
    const bool one_by_one = __any_sync(kAllLanes, sum != sum);
    if (one_by_one) weigh_one_by_one<kLater>(out, left_tile, right, values, start);
    unroll_others<kLater, kTotals>(out, total, left, right, values, start);
    return one_by_one;
  }

  // total and out += left · the state in shared memory, for the warp's rows and its columns. The product with the state's vector
  // is the sum of two columns of `total`, or none if !kTotals.
  template <bool kTotals>
  __device__ void multiply_state(Accumulator (&out)[L::kColumnTiles], Accumulator& total, const Left& left,
                                 const Tile* state) const {
    const auto* vector = reinterpret_cast<const uint32_t*>(state + L::kStateEntries);
#pragma unroll kUnroll
    for (int k = 0; k < L::kSteps; ++k) {
      const auto a = left.step(k);
      if constexpr (kTotals) {
        const uint32_t* words = vector + lane() / 4 % 2 * L::kPartWords + lane() % 4 * 2 * L::kSteps + 2 * k;
        F::multiply_add(total, a, F::from_words(words[0], words[1]));
      }
#pragma unroll
      for (int j = 0; j < L::kColumns / 16; ++j) {
        typename F::B b[2];
        if constexpr (L::kSixteenBits) F::load_b_of_columns(b, state + k * F::kDepth * kStride + column + j * 16, kStride);
        else F::load_b_of_rows(b, state + (column + j * 16) * kStride + k * F::kDepth, kStride);
        F::multiply_add(out[2 * j], a, b[0]);
        F::multiply_add(out[2 * j + 1], a, b[1]);
      }
    }
  }

  // out += left · the transposed state in shared memory.
  __device__ void multiply_transposed_state(Accumulator (&out)[L::kColumnTiles], const Left& left, const Tile* state) const {
#pragma unroll kUnroll
    for (int k = 0; k < L::kSteps; ++k) {
      const auto a = left.step_for_columns(k);
#pragma unroll
      for (int j = 0; j < L::kColumns / 16; ++j) {
        typename F::B b[2];
        if constexpr (L::kSixteenBits) F::load_b_of_rows(b, state + (column + j * 16) * kStride + k * F::kDepth, kStride);
        else F::load_b_of_columns(b, state + k * F::kDepth * kStride + column + j * 16, kStride);
        F::multiply_add(out[2 * j], a, b[0]);
        F::multiply_add(out[2 * j + 1], a, b[1]);
      }
    }
  }
  // sums[row] += weight[row] · Σ the rows of `values` that a row of the chunk sees, its own and those before it. one_by_one is
  // what multiply_seen() returned for the same values.
  __device__ void add_seen_rows(Accumulator (&sums)[L::kColumnTiles], const float (&weight)[2], const Tile* values,
                                bool one_by_one) const {
    Accumulator weights[2], unused;
    if (one_by_one) {
      const Tile* own = own_rows(values);
#pragma unroll 1
      for (int other = 0; other < 16; ++other)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (other > Accumulator::row(2 * half)) continue;
#pragma unroll
          for (int t = 0; t < L::kColumnTiles; ++t)
#pragma unroll
            for (int i = 0; i < 2; ++i)
              sums[t].x[2 * half + i] += weight[half] * to_float(own[other * kStride + column_of(t, i)]);
        }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          const bool seen = t == i / 2 ? Accumulator::column(i) <= Accumulator::row(i) % 8 : t < i / 2;
          weights[t].x[i] = seen ? weight[i / 2] : 0;
        }
      weigh<false>(sums, unused, weights, own_rows(values));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[0].x[i] = weights[1].x[i] = weight[i / 2];
#pragma unroll kUnrolledGroups
    for (int group = 0; group < L::kRowGroups - 1; ++group) {
      if (group >= row_group) break;
      weigh<false>(sums, unused, weights, values + group * 16 * kStride);
    }
  }

  // state += leftᵀ · right over the rows of a chunk, and vector += leftᵀ · weights, where weights(first row) are the weights of
  // F::kDepth rows as fragments.
  template <class Weights>
  __device__ void add_to_state(OwnState<S>& own, const Tile* left, const Tile* right, const Weights& weights) const {
    if (!owns_state()) return;
#pragma unroll kUnroll
    for (int row = 0; row < L::kRows; row += F::kDepth) {
      typename F::A a[L::kStateTiles];
#pragma unroll
      for (int m = 0; m < L::kStateTiles; ++m) a[m] = F::load_a_of_columns(left + row * kStride + state_row() + m * 16, kStride);
      if constexpr (!std::is_same<Weights, std::nullptr_t>::value) {
        const auto b = weights(row);
#pragma unroll
        for (int m = 0; m < L::kStateTiles; ++m) F::multiply_add(own.vector[m], a[m], b);
      }
#pragma unroll
      for (int j = 0; j < L::kColumns / 16; ++j) {
        typename F::B b[2];
        F::load_b_of_columns(b, right + row * kStride + column + j * 16, kStride);
#pragma unroll
        for (int m = 0; m < L::kStateTiles; ++m) {
          F::multiply_add(own.matrix[m][2 * j], a[m], b[0]);
          F::multiply_add(own.matrix[m][2 * j + 1], a[m], b[1]);
        }
      }
    }
  }
  // state += leftᵀ · right alone.
  __device__ void add_to_matrix(OwnState<S>& own, const Tile* left, const Tile* right) const {
    add_to_state(own, left, right, nullptr);
  }
  // Adds the sum of the rows of a tile to `sums` [kDim] in shared memory, of which the warp owns as many entries as rows of a
  // state.
  __device__ void add_rows(float* sums, const Tile* tile) const {
    if (!owns_state()) return;
    Accumulator sum[L::kStateTiles];
#pragma unroll kUnroll
    for (int row = 0; row < L::kRows; row += F::kDepth)
#pragma unroll
      for (int m = 0; m < L::kStateTiles; ++m)
        F::multiply_add(sum[m], F::load_a_of_columns(tile + row * kStride + state_row() + m * 16, kStride), ones());
    if (column != 0 || lane() % 4 != 0) return;
#pragma unroll
    for (int m = 0; m < L::kStateTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) sums[state_row() + m * 16 + Accumulator::row(2 * half)] += vector_entry(sum[m], half);
  }
  // Weights of the rows of a chunk, in the form of factors of products: the rounded numbers, then the remainders. Their distance
  // keeps weights_of() from reading the same bank twice.
  static constexpr int kRemainders = L::kRows + 8, kWeights = kRemainders + L::kRows;
  __device__ static void set_weight(Tile* weights, int row, float x) {
    weights[row] = from_float<Tile>(F::round_to_tile(x));
    weights[kRemainders + row] = from_float<Tile>(x - to_float(weights[row]));
  }
  // The weights of the kDepth rows from `row` on: rounded in even columns, the remainders in odd ones.
  __device__ static typename F::B weights_of(const Tile* weights, int row) {
    const Tile* own = weights + lane() / 4 % 2 * kRemainders + row + lane() % 4 * 2;
    if constexpr (L::kSixteenBits)
      return F::from_words(*reinterpret_cast<const uint32_t*>(own), *reinterpret_cast<const uint32_t*>(own + 8));
    else return F::from_words(float_to_bits(own[0]), float_to_bits(own[1]));
  }
  // Weights of 1, in even columns.
  __device__ static typename F::B ones() {
    const uint32_t one = L::kSixteenBits ? pair_of_ones() : 0x3f800000, word = lane() / 4 % 2 == 0 ? one : 0;
    return F::from_words(word, word);
  }

  // ---------------------------------------------------------- states

  // The state of a split of the block's head, in global memory.
  __device__ float* global_state(float* states, int64_t split_index) const {
    return states + ((index - params.first_head) * params.splits + split_index) * (L::kDim * L::kDim + L::kDim);
  }
  // The state that the split begins with. Without the causal mask that is the sum over all splits, which is stored as the state
  // of the first split. If a causal sequence is a single split, the state is zero, and the result is null.
  __device__ const float* first_state(float* states) const {
    return states != nullptr ? global_state(states, params.causal ? split : 0) : nullptr;
  }
  __device__ void begin_state(OwnState<S>& own, const float* from) const {
    if (from == nullptr || !owns_state()) return;
#pragma unroll
    for (int m = 0; m < L::kStateTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = state_row() + m * 16 + Accumulator::row(2 * half);
#pragma unroll
        for (int t = 0; t < L::kColumnTiles; ++t) {
          const auto two = *reinterpret_cast<const Two*>(from + row * L::kDim + column_of(t, 0));
          own.matrix[m][t].x[2 * half] = two.x[0];
          own.matrix[m][t].x[2 * half + 1] = two.x[1];
        }
        own.vector[m].x[2 * half] = from[L::kDim * L::kDim + row];
      }
    }
  }
  // The same with the transposed matrix, and with the vector in `vector` [kDim] in shared memory.
  __device__ void begin_transposed_state(OwnState<S>& own, float* vector, const float* from) const {
    for (int row = thread(); row < L::kDim; row += L::kThreads) vector[row] = from != nullptr ? from[L::kDim * L::kDim + row] : 0;
    if (from == nullptr || !owns_state()) return;
#pragma unroll
    for (int m = 0; m < L::kStateTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = state_row() + m * 16 + Accumulator::row(i);
#pragma unroll
        for (int t = 0; t < L::kColumnTiles; ++t) own.matrix[m][t].x[i] = from[column_of(t, i) * L::kDim + row];
      }
  }
  __device__ void store_state(const OwnState<S>& own, float* to) const {
    if (!owns_state()) return;
#pragma unroll
    for (int m = 0; m < L::kStateTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = state_row() + m * 16 + Accumulator::row(2 * half);
#pragma unroll
        for (int t = 0; t < L::kColumnTiles; ++t)
          *reinterpret_cast<Two*>(to + row * L::kDim + column_of(t, 0)) = {own.matrix[m][t].x[2 * half],
                                                                           own.matrix[m][t].x[2 * half + 1]};
        if (lane() % 4 == 0 && column == 0) to[L::kDim * L::kDim + row] = vector_entry(own.vector[m], half);
      }
    }
  }
  // Writes the warp's part of a state to shared memory, rounded, for multiply_state(). A barrier is needed before, after all
  // warps have read what was there, and another one after it.
  __device__ void publish(const OwnState<S>& own, Tile* state) const {
    publish_matrix(own, state);
    publish_fragments(own, state);
  }
  __device__ void publish_matrix(const OwnState<S>& own, Tile* state) const {
    if (!owns_state()) return;
    if constexpr (L::kSixteenBits) {
#pragma unroll
      for (int m = 0; m < L::kStateTiles; ++m) write_pairs(own.matrix[m], state + (state_row() + m * 16) * kStride + column);
    } else {
#pragma unroll
      for (int m = 0; m < L::kStateTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int t = 0; t < L::kColumnTiles; ++t)
            state[column_of(t, i) * kStride + state_row() + m * 16 + Accumulator::row(i)] =
                F::round_to_tile(own.matrix[m][t].x[i]);
    }
  }
  // The vector as fragments of a right factor: the rounded numbers are its even columns, and the remainders its odd ones.
  __device__ void publish_fragments(const OwnState<S>& own, Tile* state) const {
    if (!owns_state()) return;
    auto* vector = reinterpret_cast<Tile*>(state + L::kStateEntries);
    if (column != 0 || lane() % 4 > 1) return;
    const int part = lane() % 4;
#pragma unroll
    for (int m = 0; m < L::kStateTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        constexpr int kPerWord = 4 / int(sizeof(Tile));
        const int row = state_row() + m * 16 + Accumulator::row(2 * half), word = row / kPerWord;
        const float x = vector_entry(own.vector[m], half);
        const Tile rounded = from_float<Tile>(F::round_to_tile(x));
        vector[(part * L::kPartWords + word % 4 * 2 * L::kSteps + word / 4) * kPerWord + row % kPerWord] =
            part == 0 ? rounded : from_float<Tile>(x - to_float(rounded));
      }
  }
  // Writes the warp's part of a vector to `to` [kDim].
  __device__ void publish_vector(const Accumulator (&vector)[L::kStateTiles], float* to) const {
    if (!owns_state() || column != 0 || lane() % 4 != 0) return;
#pragma unroll
    for (int m = 0; m < L::kStateTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) to[state_row() + m * 16 + Accumulator::row(2 * half)] = vector_entry(vector[m], half);
  }
  __device__ static float vector_entry(const Accumulator& vector, int half) {
    return vector.x[2 * half] + vector.x[2 * half + 1];
  }

  // ---------------------------------------------------------- stores

  // Stores the warp's rows and columns of a chunk that begins with position `first`; positions from `limit` on are not stored.
  // The sums pass through the warp's own rows and columns of `staging`, whose contents are lost; before other threads or copies
  // write there, a barrier is needed. change(vector, position, column) is called for each vector before it is stored.
  template <class Change>
  __device__ void store(const Accumulator (&sum)[L::kColumnTiles], Tile* staging, Array array, int first, int limit,
                        const Change& change) const {
    Tile* own = own_rows(staging) + column;
    __syncwarp();
    if constexpr (L::kSixteenBits) {
      write_pairs(sum, own);
    } else {
#pragma unroll
      for (int t = 0; t < L::kColumnTiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<Two*>(own + Accumulator::row(2 * half) * kStride + t * 8 + Accumulator::column(0)) = {
              sum[t].x[2 * half], sum[t].x[2 * half + 1]};
    }
    __syncwarp();
    constexpr int kVectors = L::kColumns / kVector, kRowsAtOnce = kWarp / kVectors;
    const int own_lane = own_thread % kWarp, own_row = own_lane / kVectors, own_column = own_lane % kVectors * kVector;
    if (column + own_column >= dim(array)) return;
    const int begin = first + row_group * 16 + own_row;
    const Rows to = rows(array, column + own_column);
    own += own_row * kStride + own_column;
#pragma unroll
    for (int row = 0; row < 16; row += kRowsAtOnce) {
      if (begin + row >= limit) continue;
      Vector vector = staged_vector(own + row * kStride);
      change(vector, begin + row, column + own_column);
      *reinterpret_cast<Vector*>(to.at(begin + row)) = vector;
    }
  }
  __device__ void store(const Accumulator (&sum)[L::kColumnTiles], Tile* staging, Array array, int first, int limit) const {
    store(sum, staging, array, first, limit, [](Vector&, int, int) {});
  }
  // The same for gradients of keys or values: those of hidden keys are zeros, whatever was computed for them.
  __device__ void store_visible(const Accumulator (&sum)[L::kColumnTiles], Tile* staging, Array array, int first,
                                int limit) const {
    store(sum, staging, array, first, limit, [&](Vector& vector, int position, int) { hide(vector, position); });
  }
  // The same for gradients of the features of q or k, of which `features` is the tile: multiplies them by the derivatives of φ.
  // For elu0.1, whose features are rounded too far to tell the derivatives, these are computed from q or k.
  template <bool kKeys>
  __device__ void store_gradients(Accumulator (&sum)[L::kColumnTiles], const Tile* features, Tile* staging, int first,
                                  int limit) const {
    constexpr Array kTo = kKeys ? kGradK : kGradQ;
    if (params.map != FeatureMapKind::elu01) {
      multiply_by_derivatives(sum, features);
      if constexpr (kKeys) store_visible(sum, staging, kTo, first, limit);
      else store(sum, staging, kTo, first, limit);
      return;
    }
    store(sum, staging, kTo, first, limit, [&](Vector& vector, int position, int vector_column) {
      const auto entries = *reinterpret_cast<const Vector*>(rows(kKeys ? kK : kQ, vector_column).at(position));
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (L::kSixteenBits) vector.word[w] = multiply_pairs(vector.word[w], map.derivatives_at(entries.word[w]));
        else if constexpr (sizeof(E) == 4)
          vector.word[w] = float_to_bits(bits_to_float(vector.word[w]) * map.derivative_at(bits_to_float(entries.word[w])));
        else
          vector.word[w] = pair_of<E>(first_of_pair<E>(vector.word[w]) * map.derivative_at(first_of_pair<E>(entries.word[w])),
                                      second_of_pair<E>(vector.word[w]) * map.derivative_at(second_of_pair<E>(entries.word[w])));
      }
      if constexpr (kKeys) hide(vector, position);
    });
  }
  // The products of the lane's two rows of x and of `sums`, over the warp's columns.
  __device__ void multiply_rows(float (&products)[2], const Accumulator (&sums)[L::kColumnTiles], const Tile* x) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float product = 0;
#pragma unroll
      for (int t = 0; t < L::kColumnTiles; ++t) {
        const auto two = two_entries(x + row_of(2 * half) * kStride + column_of(t, 0));
        product += two.x[0] * sums[t].x[2 * half];
        product += two.x[1] * sums[t].x[2 * half + 1];
      }
      products[half] = sum_over_lanes(product, 4);
    }
  }

  const LinearParams& params;
  BranchFreeFeatureMap map;
  int64_t split;
  int64_t index, batch, head;  // index = batch · heads + head
  int64_t base;                // the first position of the split
  int visible;                 // keys at this position of the split and after it are hidden
  int own_thread;              // thread()
  int row_group, column;       // the warp computes 16 rows from row_group · 16 on, and kColumns columns from `column` on

 private:
  struct alignas(8) Two {
    float x[2];
  };
  // Two neighbouring entries of a tile.
  __device__ static Two two_entries(const Tile* at) {
    if constexpr (L::kSixteenBits) {
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(at);
      return {first_of_pair<Tile>(pair), second_of_pair<Tile>(pair)};
    } else {
      return *reinterpret_cast<const Two*>(at);
    }
  }
  // Writes the warp's 16 rows and its columns, rounded to 16 bits, to a tile in shared memory.
  __device__ static void write_pairs(const Accumulator (&sum)[L::kColumnTiles], Tile* to) {
#pragma unroll
    for (int t = 0; t < L::kColumnTiles; t += 2) store_pairs(sum[t], sum[t + 1], to + t * 8, kStride);
  }
  static constexpr int kUnroll = S::kUnroll, kUnrolledGroups = kUnroll > 1 ? L::kRowGroups : 1;

  static __device__ uintptr_t* addresses() { return reinterpret_cast<uintptr_t*>(shared_memory()); }

  // Applies f(vector, round) to the vectors of the tile that the thread loads.
  template <class Function>
  __device__ void finish_vectors(Tile* to, Array array, int first, int limit, const Function& f) const {
    Tile* own = to + vector_row(0) * kStride + vector_column();
    const int rest = vector_column() < dim(array) ? limit - first : 0;
    Vector in[kRounds];
    if constexpr (L::kAsync) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round) in[round] = *reinterpret_cast<Vector*>(own + round * kRoundRows * kStride);
    } else {
      const Rows from = rows(array, vector_column());
#pragma unroll
      for (int round = 0; round < kRounds; ++round)
        in[round] = vector_row(round) < rest ? *reinterpret_cast<const Vector*>(from.at(first + vector_row(round))) : Vector{};
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      *reinterpret_cast<TileVector*>(own + round * kRoundRows * kStride) = f(in[round], round);
    if (limit - first >= L::kRows && dim(array) == L::kDim) return;
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      if (vector_row(round) >= rest) *reinterpret_cast<TileVector*>(own + round * kRoundRows * kStride) = TileVector{};
  }

  // The row and the first column of the vectors that the thread loads.
  __device__ int vector_row(int round) const { return own_thread / kRowVectors + round * kRoundRows; }
  __device__ int vector_column() const { return own_thread % kRowVectors * kVector; }
  __device__ static uint32_t pair_of_ones() {
    if constexpr (L::kSixteenBits) return Tile::kIsBFloat16 ? 0x3f803f80 : 0x3c003c00;
    else return 0;
  }

  // Multiplies gradients of features by the derivatives of φ, given the features: the warp's rows and columns of a chunk.
  __device__ void multiply_by_derivatives(Accumulator (&grad)[L::kColumnTiles], const Tile* features) const {
    const bool relu = params.map == FeatureMapKind::relu;
#pragma unroll
    for (int t = 0; t < L::kColumnTiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Tile* at = features + row_of(2 * half) * kStride + column_of(t, 0);
        if constexpr (L::kSixteenBits) {
          const uint32_t two = derivatives_of_features(relu, *reinterpret_cast<const uint32_t*>(at));
          grad[t].x[2 * half] *= first_of_pair<Tile>(two);
          grad[t].x[2 * half + 1] *= second_of_pair<Tile>(two);
        } else {
          const auto two = two_entries(at);
#pragma unroll
          for (int i = 0; i < 2; ++i) grad[t].x[2 * half + i] *= derivative_of_feature(relu, two.x[i]);
        }
      }
  }
  // Sets a vector of the gradient of a hidden key to zeros.
  __device__ void hide(Vector& vector, int position) const {
    if (position >= visible) vector = Vector{};
  }
  // A vector of a tensor, given its entries in a tile.
  __device__ static Vector staged_vector(const Tile* at) {
    if constexpr (L::kAsync) {
      return *reinterpret_cast<const Vector*>(at);
    } else {
      Vector vector;
#pragma unroll
      for (int w = 0; w < 4; ++w) vector.word[w] = pair_of<E>(to_float(at[2 * w]), to_float(at[2 * w + 1]));
      return vector;
    }
  }
  // scores = start + the warp's rows of left · 16 rows of rightᵀ, which are the rows of the chunk from `row` on.
  template <class Start>
  __device__ void score(Accumulator (&scores)[2], const Left& left, const Tile* right, int row, const Start& start) const {
#pragma unroll
    for (int t = 0; t < 2; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[t].x[i] = start(row + t * 8 + Accumulator::column(i));
#pragma unroll kUnroll
    for (int k = 0; k < L::kSteps; ++k) {
      const auto a = left.step(k);
      typename F::B b[2];
      F::load_b_of_rows(b, right + k * F::kDepth, kStride);
      F::multiply_add(scores[0], a, b[0]);
      F::multiply_add(scores[1], a, b[1]);
    }
  }
  // out += weights [16,16] · 16 rows of values
  template <bool kTotals>
  __device__ void weigh(Accumulator (&out)[L::kColumnTiles], Accumulator& total, const Accumulator (&weights)[2],
                        const Tile* values) const {
    typename F::A a[F::kDepthsOfPair];
    F::from_accumulators(a, weights);
#pragma unroll
    for (int s = 0; s < F::kDepthsOfPair; ++s) {
      if constexpr (kTotals) F::multiply_add(total, a[s], ones());
#pragma unroll
      for (int j = 0; j < L::kColumns / 16; ++j) {
        typename F::B b[2];
        F::load_b_of_columns(b, values + s * F::kDepth * kStride + column + j * 16, kStride);
        F::multiply_add(out[2 * j], a[s], b[0]);
        F::multiply_add(out[2 * j + 1], a[s], b[1]);
      }
    }
  }
  // The part of multiply_seen() for the rows of `right` of other warps.
  template <bool kLater, bool kTotals, class Start>
  __device__ void unroll_others(Accumulator (&out)[L::kColumnTiles], Accumulator& total, const Left& left, const Tile* right,
                                const Tile* values, const Start& start) const {
#pragma unroll kUnrolledGroups
    for (int i = 0; i < L::kRowGroups - 1; ++i) {
      const int group = kLater ? L::kRowGroups - 1 - i : i;
      if (kLater ? group <= row_group : group >= row_group) break;
      Accumulator scores[2];
      score(scores, left, right + group * 16 * kStride, group * 16, start);
      weigh<kTotals>(out, total, scores, values + group * 16 * kStride);
    }
  }
  // Sets `out` to what weigh() computes for the rows of `right` that belong to the warp's rows, but leaves out the pairs that are
  // not seen.
  template <bool kLater, class Start>
  __device__ void weigh_one_by_one(Accumulator (&out)[L::kColumnTiles], const Tile* left, const Tile* right, const Tile* values,
                                   const Start& start) const {
#pragma unroll
    for (int t = 0; t < L::kColumnTiles; ++t) out[t] = Accumulator();
    for (int other = row_group * 16; other < row_group * 16 + 16; ++other) {
      float weights[2] = {0, 0};
#pragma unroll 1
      for (int d = lane() % 4; d < L::kDim; d += 4)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          weights[half] += to_float(left[row_of(2 * half) * kStride + d]) * to_float(right[other * kStride + d]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        weights[half] = to_float(from_float<Tile>(F::round_to_tile(start(other) + sum_over_lanes(weights[half], 4))));
        if (kLater ? other < row_of(2 * half) : other > row_of(2 * half)) continue;
#pragma unroll
        for (int t = 0; t < L::kColumnTiles; ++t)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            out[t].x[2 * half + i] += weights[half] * to_float(values[other * kStride + column_of(t, i)]);
      }
    }
  }
};

}  // namespace attn::cuda
