// Linear attention on the GPU: causal or not, forward and backward, for head and value dimensions up to 128.
//
// A block takes one (batch entry, head) and one split of its positions, a chunk at a time; a warp takes 16 positions of the
// chunk. What lies before a split (after it, for the gradients of k and v) is summed up by sum_states, a split a block, and added
// up along the splits by scan_states; so blocks never wait for each other, and global memory holds one state a split and no more.
//
//   state     S [F,M] = Σ φ(k)vᵀ and Z [F] = Σ φ(k), or R = Σ φ(q)g′ᵀ and Y = Σ δφ(q), in float32 in shared memory
//   products  16 × 8 tiles of the tensor cores (mma.h), sums in float32
//   scores    of the chunk with itself, through shared memory to become a factor of the next product
//
// g′ = gradient / normalizer and δ = the gradient of the normalizer, as in attn/linear/cpu/kernels.h.
#pragma once

#include "attn/linear/cuda/call.h"
#include "attn/linear/cuda/map.cuh"
#include "attn/cuda/tiles.cuh"

namespace attn::cuda {

template <class S>
using E_of = typename S::E;

// Rows of the state: float32 whatever the tiles hold.
template <class S>
constexpr int kStateStride = S::kDim + 4;
template <class S>
constexpr size_t linear_shared_bytes(int tiles) {
  return tiles * S::tile_bytes() + S::score_bytes() + sizeof(float) * (S::kDim * kStateStride<S> + S::kDim + 2 * S::kTokens);
}

// ------------------------------------------------------------ a block's parts

template <class S>
class LinearBlock {
 public:
  using E = typename S::E;
  using Tile = typename S::Tile;
  using F = typename S::F;

  // `tiles` of positions × kDim in shared memory; blocks count splits first.
  __device__ LinearBlock(const LinearCall& call, int tiles)
      : c(call), split(int64_t(blockIdx.x) % call.splits), index(int64_t(blockIdx.x) / call.splits) {
    batch = index / c.heads, head = index % c.heads;
    char* p = shared_memory();
    for (int i = 0; i < tiles; ++i, p += S::tile_bytes()) tile[i] = reinterpret_cast<Tile*>(p);
    scores = reinterpret_cast<Tile*>(p), p += S::score_bytes();
    state = reinterpret_cast<float*>(p), p += sizeof(float) * S::kDim * kStateStride<S>;
    vector = reinterpret_cast<float*>(p), p += sizeof(float) * S::kDim;
    row_a = reinterpret_cast<float*>(p), row_b = row_a + S::kTokens;
    visible = c.key_lengths ? c.key_lengths[batch] : c.key_len;
    visible = visible < 0 ? 0 : visible > c.key_len ? c.key_len : visible;
  }

  __device__ int64_t begin(int64_t length) const { return least(length, split * c.split_len); }
  __device__ int64_t end(int64_t length) const { return least(length, (split + 1) * c.split_len); }
  __device__ static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  __device__ E* rows(const Tensor4& x) const { return static_cast<E*>(x.data) + batch * x.batch_stride + head * x.head_stride; }

  // Positions first … of a tensor's `dim` columns through f(x, row of the tile), zeros from `limit` on.
  template <class Function>
  __device__ void load(Tile* to, const Tensor4& x, int64_t first, int64_t limit, int dim, const Function& f) const {
    const E* from = rows(x);
    load_rows<S>(
        to, dim, [&](int t) { return first + t < limit ? from + (first + t) * x.row_stride : nullptr; }, f);
  }
  __device__ void load_features(Tile* to, const Tensor4& x, int64_t first, int64_t limit) const {
    load(to, x, first, limit, c.head_dim, [&](float entry, int) { return apply_map(c.map, entry); });
  }
  __device__ void load_values(Tile* to, int64_t first) const {
    load(to, c.v, first, visible, c.value_dim, [](float entry, int) { return entry; });
  }
  // g′, from 1/normalizer in row_a.
  __device__ void load_gradients(Tile* to, int64_t first, int64_t limit) const {
    load(to, c.gradient, first, limit, c.value_dim, [&](float entry, int t) { return entry * row_a[t]; });
  }
  // 1/normalizer to row_a, and δ to row_b.
  __device__ void load_normalizers(int64_t first, int64_t limit, bool with_gradients) const {
    for (int t = thread(); t < S::kTokens; t += S::kThreads) {
      const bool there = first + t < limit;
      row_a[t] = there ? 1 / static_cast<float*>(c.normalizer)[index * c.query_len + first + t] : 0;
      row_b[t] = there && with_gradients ? static_cast<float*>(c.normalizer_gradient)[index * c.query_len + first + t] : 0;
    }
  }

  // ---------------------------------------------------------- the state

  __device__ float* state_of(int64_t at) const { return c.states + (index * c.splits + at) * (S::kDim * S::kDim + S::kDim); }
  // What the split begins with: nothing where a sequence is one, and the sum of all where the call is not causal.
  __device__ void begin_state() const { load_state(c.states ? state_of(c.causal ? split : 0) : nullptr); }
  __device__ void load_state(const float* from) const {
    for (int i = thread(); i < S::kDim * S::kDim; i += S::kThreads)
      state[i / S::kDim * kStateStride<S> + i % S::kDim] = from ? from[i] : 0;
    for (int d = thread(); d < S::kDim; d += S::kThreads) vector[d] = from ? from[S::kDim * S::kDim + d] : 0;
  }
  __device__ void store_state(float* to) const {
    for (int i = thread(); i < S::kDim * S::kDim; i += S::kThreads) to[i] = state[i / S::kDim * kStateStride<S> + i % S::kDim];
    for (int d = thread(); d < S::kDim; d += S::kThreads) to[S::kDim * S::kDim + d] = vector[d];
  }
  // state += leftᵀ · right and vector += Σ weight(t) · left[t], over the chunk; to be put between barriers.
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
      for (int t = 0; t < S::kTokens; ++t) sum += weight(t) * to_float(left[t * S::kStride + d]);
      vector[d] = sum;
    }
  }

  // ---------------------------------------------------------- the warp's 16 rows

  // sum += left · state [F,M], or its transpose.
  __device__ void read_state(Accumulator (&sum)[S::kTiles], Tile* left, bool transposed) const {
    if (transposed) multiply<F, S::kTiles, S::kSteps>(sum, own_rows(left, S::kStride), S::kStride, 1, state, 1, kStateStride<S>);
    else multiply<F, S::kTiles, S::kSteps>(sum, own_rows(left, S::kStride), S::kStride, 1, state, kStateStride<S>, 1);
  }
  // Of each of the lane's two rows with `vector`.
  __device__ void dot_with_vector(Tile* left, float (&dots)[2]) const {
    for (int half = 0; half < 2; ++half) {
      const Tile* row = own_rows(left, S::kStride) + (lane() / 4 + half * 8) * S::kStride;
      float sum = 0;
      for (int d = lane() % 4; d < S::kDim; d += 4) sum += to_float(row[d]) * vector[d];
      dots[half] = sum_over_lanes(sum, 4);
    }
  }

  // The warp's rows to positions first … below `limit`, of `dim` columns, through f(x, position, column).
  template <class Function>
  __device__ void store(const Accumulator (&sum)[S::kTiles], Tile* staging, const Tensor4& to, int64_t first, int64_t limit,
                        int dim, const Function& f) const {
    E* all = rows(to);
    const int64_t own_first = first + warp() * 16;
    store_rows<S>(
        sum, staging, dim, [&](int t) { return own_first + t < limit ? all + (own_first + t) * to.row_stride : nullptr; },
        [&](float x, int t, int column) { return f(x, own_first + t, column); });
  }

  const LinearCall& c;
  int64_t split, index, batch, head;
  int64_t visible;  // keys
  Tile *tile[4], *scores;
  float *state, *vector, *row_a, *row_b;
};

// ------------------------------------------------------------ scores of a causal chunk

// Zeros for the keys that a row does not see.
template <class S>
__device__ inline void keep_seen(Accumulator (&scores)[S::kScoreTiles]) {
#pragma unroll
  for (int t = 0; t < S::kScoreTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (t * 8 + Accumulator::column(i) > warp() * 16 + Accumulator::row(i)) scores[t].x[i] = 0;
}
// Of the lane's two rows, group and group + 8.
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

// ------------------------------------------------------------ kernels

// The state of each split alone: of its keys, or of its queries and their gradients.
template <class S>
__global__ void __launch_bounds__(S::kThreads) sum_states(LinearCall c, bool of_queries) {
  const LinearBlock<S> block(c, 2);
  auto *left = block.tile[0], *right = block.tile[1];
  block.load_state(nullptr);
  const int64_t length = of_queries ? c.query_len : c.key_len, end = block.end(length);
  for (int64_t first = block.begin(length); first < end; first += S::kTokens) {
    __syncthreads();
    if (of_queries) {
      block.load_normalizers(first, end, /*with_gradients=*/true);
      __syncthreads();
      block.load_features(left, c.q, first, end);
      block.load_gradients(right, first, end);
    } else {
      block.load_features(left, c.k, first, block.least(end, block.visible));
      block.load_values(right, first);
    }
    __syncthreads();
    block.add_to_state(left, right, [&](int t) { return of_queries ? block.row_b[t] : 1.0f; });
  }
  __syncthreads();
  block.store_state(block.state_of(block.split));
}

// In place: of each split's states, the sum of those before it, or behind it, or of all.
enum class Scan { before, behind, all };
inline __global__ void scan_states(float* states, int64_t size, int64_t splits, int64_t numbers, Scan scan) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, index = i / size;
  if (i >= numbers) return;
  states += index * splits * size + i % size;
  float sum = 0;
  for (int64_t s = 0; s < splits; ++s) {
    float* at = states + (scan == Scan::behind ? splits - 1 - s : s) * size;
    const float own = *at;
    if (scan != Scan::all) *at = sum;
    sum += own;
  }
  if (scan == Scan::all) *states = sum;
}

template <class S>
__global__ void __launch_bounds__(S::kThreads) forward(LinearCall c) {
  const LinearBlock<S> block(c, 3);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2];
  block.begin_state();
  const int64_t end = block.end(c.query_len);
  for (int64_t first = block.begin(c.query_len); first < end; first += S::kTokens) {
    __syncthreads();
    block.load_features(q, c.q, first, end);
    if (c.causal) {
      block.load_features(k, c.k, first, block.least(end, block.visible));
      block.load_values(v, first);
    }
    __syncthreads();
    float totals[2];
    block.dot_with_vector(q, totals);
    Accumulator out[S::kTiles];
    if (c.causal) {
      Accumulator scores[S::kScoreTiles];
      score_rows<S>(scores, q, k);
      keep_seen<S>(scores);
      add_row_sums<S>(scores, totals);
      store_scores<S>(scores, block.scores, [](int, int, float x) { return x; });
      apply_scores<S>(out, block.scores, v);
    }
    block.read_state(out, q, /*transposed=*/false);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = totals[half] + c.epsilon;
      const int64_t position = first + warp() * 16 + lane() / 4 + half * 8;
      if (lane() % 4 == 0 && position < end) static_cast<float*>(c.normalizer)[block.index * c.query_len + position] = total;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) out[t].x[half * 2] /= total, out[t].x[half * 2 + 1] /= total;
    }
    block.store(out, q, c.output, first, end, c.value_dim, [](float x, int64_t, int) { return x; });
    if (!c.causal) continue;
    __syncthreads();
    block.add_to_state(k, v, [](int) { return 1.0f; });
  }
}

// The gradient of q, and δ.
template <class S>
__global__ void __launch_bounds__(S::kThreads) backward_queries(LinearCall c) {
  const LinearBlock<S> block(c, 4);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2], *g = block.tile[3];
  block.begin_state();
  const int64_t end = block.end(c.query_len);
  for (int64_t first = block.begin(c.query_len); first < end; first += S::kTokens) {
    __syncthreads();
    block.load_normalizers(first, end, /*with_gradients=*/false);
    __syncthreads();
    block.load_features(q, c.q, first, end);
    block.load_gradients(g, first, end);
    if (c.causal) {
      block.load_features(k, c.k, first, block.least(end, block.visible));
      block.load_values(v, first);
    }
    __syncthreads();
    Accumulator of_phi[S::kTiles];
    block.read_state(of_phi, g, /*transposed=*/true);
    if (c.causal) {
      Accumulator scores[S::kScoreTiles];
      score_rows<S>(scores, g, v);
      store_scores<S>(scores, block.scores, [](int row, int column, float x) { return column <= row ? x : 0.0f; });
      apply_scores<S>(of_phi, block.scores, k);
    }
    // δ = −φ·∂φ / normalizer, of the two rows.
    float delta[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp() * 16 + lane() / 4 + half * 8;
      float dot = 0;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          dot += to_float(q[row * S::kStride + t * 8 + Accumulator::column(i)]) * of_phi[t].x[half * 2 + i];
      delta[half] = -sum_over_lanes(dot, 4) * block.row_a[row];
      if (lane() % 4 == 0 && first + row < end)
        static_cast<float*>(c.normalizer_gradient)[block.index * c.query_len + first + row] = delta[half];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) of_phi[t].x[half * 2 + i] += delta[half] * block.vector[t * 8 + Accumulator::column(i)];
    }
    if (c.causal) {
      // δ for each key of the own chunk that the row sees.
      const Accumulator none[S::kScoreTiles];
      store_scores<S>(none, block.scores,
                      [&](int row, int column, float) { return column <= row ? (row % 16 < 8 ? delta[0] : delta[1]) : 0.0f; });
      apply_scores<S>(of_phi, block.scores, k);
    }
    const E_of<S>* x = block.rows(c.q);
    block.store(of_phi, g, c.q_gradient, first, end, c.head_dim, [&](float of_feature, int64_t position, int column) {
      return map_gradient(c.map, to_float(x[position * c.q.row_stride + column]), of_feature);
    });
    if (!c.causal) continue;
    __syncthreads();
    block.add_to_state(k, v, [](int) { return 1.0f; });
  }
}

// The gradients of k and v; causal: from the last position to the first.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kPrecision == Precision::tf32_three ? 1 : 2) backward_keys(LinearCall c) {
  const LinearBlock<S> block(c, 4);
  auto *q = block.tile[0], *k = block.tile[1], *v = block.tile[2], *g = block.tile[3];
  block.begin_state();
  const int64_t begin = block.begin(c.key_len), end = block.end(c.key_len);
  for (int64_t first = begin + (end - begin - 1) / S::kTokens * S::kTokens; first >= begin; first -= S::kTokens) {
    __syncthreads();
    if (c.causal) block.load_normalizers(first, end, /*with_gradients=*/true);
    __syncthreads();
    block.load_features(k, c.k, first, block.least(end, block.visible));
    block.load_values(v, first);
    if (c.causal) {
      block.load_features(q, c.q, first, end);
      block.load_gradients(g, first, end);
    }
    __syncthreads();
    const auto seen = [](int row, int column) { return column >= row; };  // row: a key, column: a query
    const auto hide = [&](float x, int64_t position, int) { return position < block.visible ? x : 0.0f; };
    Accumulator of_v[S::kTiles];
    block.read_state(of_v, k, /*transposed=*/false);
    if (c.causal) {
      Accumulator scores[S::kScoreTiles];
      score_rows<S>(scores, k, q);
      store_scores<S>(scores, block.scores, [&](int row, int column, float x) { return seen(row, column) ? x : 0.0f; });
      apply_scores<S>(of_v, block.scores, g);
    }
    block.store(of_v, k, c.v_gradient, first, end, c.value_dim, hide);  // the own warp alone has read its rows of k
    Accumulator of_phi[S::kTiles];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) of_phi[t].x[i] = block.vector[t * 8 + Accumulator::column(i)];
    block.read_state(of_phi, v, /*transposed=*/true);
    if (c.causal) {
      Accumulator scores[S::kScoreTiles];
      score_rows<S>(scores, v, g);
      store_scores<S>(scores, block.scores,
                      [&](int row, int column, float x) { return seen(row, column) ? x + block.row_b[column] : 0.0f; });
      apply_scores<S>(of_phi, block.scores, q);
    }
    const E_of<S>* x = block.rows(c.k);
    block.store(of_phi, v, c.k_gradient, first, end, c.head_dim, [&](float of_feature, int64_t position, int column) {
      return hide(map_gradient(c.map, to_float(x[position * c.k.row_stride + column]), of_feature), position, column);
    });
    if (!c.causal) continue;
    __syncthreads();
    block.add_to_state(q, g, [&](int t) { return block.row_b[t]; });
  }
}

}  // namespace attn::cuda
