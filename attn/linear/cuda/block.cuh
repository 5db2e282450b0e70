// LinearBlock: what every tensor-core kernel of linear attention uses, that is the shared memory of a thread block, its loads and
// stores, and its state.
//
// A block processes one (batch entry, head) and one split of its positions, in chunks of S::kRows positions (64, or 32 for
// float32 tiles of 128 columns); each warp owns 16 positions of the chunk. Products are computed by the tensor cores and
// accumulated in float32. A block owns this shared memory, where kDim is the tile dimension that head_dim and value_dim are
// padded to:
//
//   tile[0…3]           [kRows, kDim]   rows of φ(q), φ(k), v or g′ in S::Tile (bfloat16 or float32); 2 to 4 tiles, by kernel
//   scores              [kRows, kRows]  scores of the chunk with itself, or their gradients, in S::Tile
//   state               [kDim, kDim]    S = Σ φ(k)vᵀ or R = Σ φ(q)g′ᵀ, in float32
//   vector              [kDim]          Z = Σ φ(k) or Y = Σ δφ(q), in float32
//   inverse_normalizer  [kRows]         1/normalizer of the chunk's queries, in float32
//   grad_normalizer     [kRows]         δ of the chunk's queries, in float32
//
// As in attn/linear/cpu/kernels.h, g′ = grad_output / normalizer, and δ is the gradient of the normalizer. In the backward pass v
// and δ are the v′ and δ′ of attn/linear/value_shift.h.
#pragma once

#include "attn/cuda/tiles.cuh"
#include "attn/linear/cuda/feature_map.cuh"
#include "attn/linear/cuda/params.h"

namespace attn::cuda {

// Elements from one row of the state to the next.
template <class S>
constexpr int kStateStride = S::kDim + 4;

template <class S>
constexpr size_t linear_shared_bytes(int tiles) {
  return tiles * S::tile_bytes() + S::score_bytes() + sizeof(float) * (S::kDim * kStateStride<S> + S::kDim + 2 * S::kRows);
}

template <class S>
class LinearBlock {
 public:
  using E = typename S::E;
  using Tile = typename S::Tile;
  using F = typename S::F;

  // `tiles` is the number of row tiles that the kernel uses. The index of the block is (batch entry · heads + head) · splits +
  // split.
  __device__ LinearBlock(const LinearParams& all_params, int tiles)
      : params(all_params), split(int64_t(blockIdx.x) % all_params.splits), index(int64_t(blockIdx.x) / all_params.splits) {
    batch = index / params.heads, head = index % params.heads;
    char* p = shared_memory();
    for (int i = 0; i < tiles; ++i, p += S::tile_bytes()) tile[i] = reinterpret_cast<Tile*>(p);
    scores = reinterpret_cast<Tile*>(p), p += S::score_bytes();
    state = reinterpret_cast<float*>(p), p += sizeof(float) * S::kDim * kStateStride<S>;
    vector = reinterpret_cast<float*>(p), p += sizeof(float) * S::kDim;
    inverse_normalizer = reinterpret_cast<float*>(p), grad_normalizer = inverse_normalizer + S::kRows;
    visible = params.key_lengths ? params.key_lengths[batch] : params.key_len;
    visible = visible < 0 ? 0 : visible > params.key_len ? params.key_len : visible;
  }

  // The first position of the split, and the position after its last one, in a sequence of this length.
  __device__ int64_t begin(int64_t length) const { return min_of(length, split * params.split_len); }
  __device__ int64_t end(int64_t length) const { return min_of(length, (split + 1) * params.split_len); }
  __device__ static int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

  // The rows of the block's head.
  __device__ E* rows(const StridedTensor& x) const {
    return static_cast<E*>(x.data) + batch * x.batch_stride + head * x.head_stride;
  }

  // Loads the kRows positions that begin with `first` of x into a tile: each of the `dim` entries e of row t becomes f(e, t,
  // column). Rows of positions from `limit` on become zeros.
  template <class Function>
  __device__ void load(Tile* to, const StridedTensor& x, int64_t first, int64_t limit, int dim, const Function& f) const {
    const E* from = rows(x);
    load_rows<S>(
        to, dim, [&](int t) { return first + t < limit ? from + (first + t) * x.row_stride : nullptr; }, f);
  }
  __device__ void load_features(Tile* to, const StridedTensor& x, int64_t first, int64_t limit) const {
    load(to, x, first, limit, params.head_dim, [&](float entry, int, int) { return apply_feature_map(params.map, entry); });
  }
  __device__ void load_values(Tile* to, int64_t first) const {
    const float* shift = value_shift();
    load(to, params.v, first, visible, params.value_dim,
         [&](float entry, int, int column) { return shift != nullptr ? entry - shift[column] : entry; });
  }
  // What the backward pass takes off the columns of v; null in the forward pass.
  __device__ const float* value_shift() const {
    const auto* all = static_cast<const float*>(params.value_shift);
    return all != nullptr ? all + index * params.value_shift_stride : nullptr;
  }
  // Loads g′ = grad_output / normalizer. Before it, load_normalizers() of the same positions and a barrier are needed.
  __device__ void load_scaled_gradients(Tile* to, int64_t first, int64_t limit) const {
    load(to, params.grad_output, first, limit, params.value_dim,
         [&](float entry, int t, int) { return entry * inverse_normalizer[t]; });
  }
  // Fills inverse_normalizer and grad_normalizer, the latter with zeros unless with_gradients.
  __device__ void load_normalizers(int64_t first, int64_t limit, bool with_gradients) const {
    for (int t = thread(); t < S::kRows; t += S::kThreads) {
      const bool valid = first + t < limit;
      inverse_normalizer[t] = valid ? 1 / static_cast<float*>(params.normalizer)[index * params.query_len + first + t] : 0;
      grad_normalizer[t] =
          valid && with_gradients ? static_cast<float*>(params.grad_normalizer)[index * params.query_len + first + t] : 0;
    }
  }

  // ---------------------------------------------------------- the state

  // The state of a split of the block's head, in global memory.
  __device__ float* global_state(int64_t split_index) const {
    return params.states + (index * params.splits + split_index) * (S::kDim * S::kDim + S::kDim);
  }
  // Loads the state that the split begins with. Without the causal mask that is the sum over all splits, which is stored as the
  // state of the first split. If a causal sequence is a single split, the state is zero.
  __device__ void begin_state() const { load_state(params.states ? global_state(params.causal ? split : 0) : nullptr); }
  // Loads a state from global memory; zeros if `from` is null.
  __device__ void load_state(const float* from) const {
    for (int i = thread(); i < S::kDim * S::kDim; i += S::kThreads)
      state[i / S::kDim * kStateStride<S> + i % S::kDim] = from ? from[i] : 0;
    for (int d = thread(); d < S::kDim; d += S::kThreads) vector[d] = from ? from[S::kDim * S::kDim + d] : 0;
  }
  __device__ void store_state(float* to) const {
    for (int i = thread(); i < S::kDim * S::kDim; i += S::kThreads) to[i] = state[i / S::kDim * kStateStride<S> + i % S::kDim];
    for (int d = thread(); d < S::kDim; d += S::kThreads) to[S::kDim * S::kDim + d] = vector[d];
  }
  // state += leftᵀ · right and vector += Σ_t weight(t) · left[t], over the rows t of a chunk. A barrier is needed before, after
  // all warps have written the tiles, and another one after it before a warp reads the state.
  template <class Weight>
  __device__ void add_to_state(const Tile* left, const Tile* right, const Weight& weight) const {
    for (int r = warp() * 16; r < S::kDim; r += S::kWarps * 16) {
      Accumulator sum[S::kTiles];
      float* rows = state + r * kStateStride<S>;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[t].x[i] = rows[Accumulator::row(i) * kStateStride<S> + t * 8 + Accumulator::column(i)];
      multiply<F, S::kTiles, S::kScoreSteps>(sum, left + r, 1, S::kStride, right, S::kStride, 1);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[Accumulator::row(i) * kStateStride<S> + t * 8 + Accumulator::column(i)] = sum[t].x[i];
    }
    for (int d = thread(); d < S::kDim; d += S::kThreads) {
      float sum = vector[d];
      for (int t = 0; t < S::kRows; ++t) sum += weight(t) * to_float(left[t * S::kStride + d]);
      vector[d] = sum;
    }
  }

  // ---------------------------------------------------------- the warp's 16 rows

  // sum += left · state or, if transposed, left · stateᵀ, for the warp's rows of `left`.
  __device__ void read_state(Accumulator (&sum)[S::kTiles], Tile* left, bool transposed) const {
    if (transposed) multiply<F, S::kTiles, S::kSteps>(sum, own_rows(left, S::kStride), S::kStride, 1, state, 1, kStateStride<S>);
    else multiply<F, S::kTiles, S::kSteps>(sum, own_rows(left, S::kStride), S::kStride, 1, state, kStateStride<S>, 1);
  }
  // The products of the lane's two rows of `left`, rows lane / 4 and lane / 4 + 8 of the warp's rows, with `vector`.
  __device__ void dot_with_vector(Tile* left, float (&dots)[2]) const {
    for (int half = 0; half < 2; ++half) {
      const Tile* row = own_rows(left, S::kStride) + (lane() / 4 + half * 8) * S::kStride;
      float sum = 0;
      for (int d = lane() % 4; d < S::kDim; d += 4) sum += to_float(row[d]) * vector[d];
      dots[half] = sum_over_lanes(sum, 4);
    }
  }

  // Stores the warp's rows of a chunk that begins with position `first` in a tensor with `dim` columns. Entry x is stored as
  // f(x, position, column); positions from `limit` on are not stored.
  template <class Function>
  __device__ void store(const Accumulator (&sum)[S::kTiles], Tile* staging, const StridedTensor& to, int64_t first, int64_t limit,
                        int dim, const Function& f) const {
    E* all = rows(to);
    const int64_t own_first = first + warp() * 16;
    store_rows<S>(
        sum, staging, dim, [&](int t) { return own_first + t < limit ? all + (own_first + t) * to.row_stride : nullptr; },
        [&](float x, int t, int column) { return f(x, own_first + t, column); });
  }

  const LinearParams& params;
  int64_t split;
  int64_t index, batch, head;  // index = batch · heads + head
  int64_t visible;             // keys at this position and after it are hidden
  // Shared memory, described at the top of this file.
  Tile *tile[4], *scores;
  float *state, *vector, *inverse_normalizer, *grad_normalizer;
};

// ------------------------------------------------------------ scores of a causal chunk

// Sets the scores of the keys that a row of a causal chunk does not see to zero.
template <class S>
__device__ inline void zero_unseen(Accumulator (&scores)[S::kScoreTiles]) {
#pragma unroll
  for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (t * 8 + Accumulator::column(i) > warp() * 16 + Accumulator::row(i)) scores[t].x[i] = 0;
}
// Adds the sum of each of the lane's two rows of scores to `totals`.
template <class S>
__device__ inline void add_row_sums(const Accumulator (&scores)[S::kScoreTiles], float (&totals)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0;
#pragma unroll
    for (int t = 0; t < S::kScoreTiles; ++t) sum += scores[t].x[half * 2] + scores[t].x[half * 2 + 1];
    totals[half] += sum_over_lanes(sum, 4);
  }
}

}  // namespace attn::cuda
