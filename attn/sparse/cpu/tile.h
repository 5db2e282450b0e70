// A tile of scores: which of its pairs are visible, and the loads and products that both passes need.
//
// A tile has up to 64 queries and 64 keys. Its matrices are transposed, [key][query], so that the queries are the lanes of
// vectors: the maxima, sums and factors of the softmax are vectors, and products read keys and values from the tensors, without a
// copy.
#pragma once

#include "attn/cpu/chunk_rows.h"
#include "attn/cpu/products.h"
#include "attn/cpu/scratch.h"
#include "attn/sparse/cpu/kernels.h"

namespace attn::cpu {
namespace {

constexpr int64_t kTile = 64;  // the number of queries and of keys

// In a tile with hidden pairs, the number of neighbouring queries that are computed together, with the range of keys that they
// see: as many as a tile of a product has.
template <class V>
constexpr int64_t kGroup = V::kLanes * (V::kLanes == 16 ? 2 : kTileColumns<V>);

// Which pairs of a tile are visible.
struct TileMask {
  bool all = true;
  // For key j, the queries [begin, end) of the tile that see it, in up to two intervals.
  Interval one[kTile], other[kTile];

  TileMask(const VisiblePart& part, int64_t row, int64_t rows, int64_t key, int64_t keys) {
    for (int64_t j = 0; j < keys; ++j) {
      part.rows_that_see(key + j, row, row + rows, one[j], other[j]);
      if (one[j].begin != row || one[j].end < row + rows) all = false;
      one[j].begin -= row;
      one[j].end -= row;
      other[j].begin -= row;
      other[j].end -= row;
    }
  }

  // The keys from the first to the last that some query of begin … end − 1 sees, among `keys` keys.
  Interval keys_of(int64_t begin, int64_t end, int64_t keys) const {
    const auto meets = [&](const Interval& x) { return x.begin < end && x.end > begin && x.begin < x.end; };
    Interval found{keys, 0};
    for (int64_t j = 0; j < keys; ++j)
      if (meets(one[j]) || meets(other[j])) {
        if (j < found.begin) found.begin = j;
        found.end = j + 1;
      }
    return found;
  }
  bool sees_all(int64_t j, int64_t begin, int64_t end) const { return one[j].begin <= begin && one[j].end >= end; }
};

// x in lanes whose query c, c+1, … sees key j, and −∞ in the others.
template <class V>
inline typename V::F keep_visible(const TileMask& mask, int64_t j, int64_t c, typename V::F x) {
  const auto hidden = V::all(-__builtin_inff());
  const auto within = [&](const Interval& lanes, typename V::F otherwise) {
    const auto clamp = [](int64_t n) { return n < 0 ? int64_t{0} : n > V::kLanes ? int64_t{V::kLanes} : n; };
    return V::choose(V::from(clamp(lanes.begin - c)), V::choose(V::first(clamp(lanes.end - c)), x, otherwise), otherwise);
  };
  auto kept = within(mask.one[j], hidden);
  if (mask.other[j].begin < mask.other[j].end) kept = within(mask.other[j], kept);
  return kept;
}

// Rows of a tensor as float32 with zeros up to padded(dim): the memory of the tensor if it has this form, otherwise a copy.
struct TileRows {
  const float* data;
  int64_t stride;
};

template <class V, class E>
[[gnu::noinline]] void load_gathered_rows(const Rows& rows, const VisiblePart& part, int64_t key, int64_t keys, int64_t dim,
                                          float* to, int64_t width) {
  for (int64_t j = 0; j < keys; ++j) load_rows<V, E>(rows, part.position(key + j), 1, dim, to + j * width, width, 0, 1);
}

// The rows of k or v for the keys of a tile.
template <class V, class E>
inline TileRows rows_of_keys(const Rows& rows, const VisiblePart& part, int64_t key, int64_t keys, int64_t dim, float* buffer) {
  const auto width = padded(dim);
  const bool has_one_step = part.relation != VisiblePart::Relation::summary;
  if (sizeof(E) == sizeof(float) && dim == width && has_one_step)
    return {static_cast<const float*>(rows.data) + part.position(key) * rows.stride, part.step * rows.stride};
  if (has_one_step) {
    const Rows stepped{static_cast<E*>(rows.data) + part.key_begin * rows.stride, part.step * rows.stride};
    load_rows<V, E>(stepped, key, keys, dim, buffer, width, 0, keys);
  } else {
    load_gathered_rows<V, E>(rows, part, key, keys, dim, buffer, width);
  }
  return {buffer, width};
}

// Loads rows of q or of the gradient of the output, multiplied by `scale`, into to[64][padded(dim)] with zeros after them, and
// their transpose into transposed[padded(dim)][64].
template <class V, class E>
inline void load_queries(const Rows& rows, const VisiblePart& part, int64_t row, int64_t count, int64_t dim, float scale,
                         float* to, float* transposed) {
  const auto width = padded(dim);
  const auto scaled = [&](int64_t, int64_t, typename V::F x) __attribute__((always_inline)) { return V::mul(x, V::all(scale)); };
  if (part.queries) {
    for (int64_t i = 0; i < count; ++i)
      load_changed_rows<V, E>(rows, part.queries[row + i], 1, dim, to + i * width, width, 0, i + 1 < count ? 1 : kTile - i,
                              scaled);
  } else {
    const Rows stepped{static_cast<E*>(rows.data) + part.query_begin * rows.stride, part.step * rows.stride};
    load_changed_rows<V, E>(stepped, row, count, dim, to, width, 0, kTile, scaled);
  }
  transpose<V>(to, width, kTile, width, transposed, kTile);
}

// Some queries of a tile, and the range of keys that they see.
struct TileBlock {
  const TileMask& mask;
  TileRows k, v;         // the rows of all keys of the tile
  int64_t key;           // the first key of the tile
  int64_t begin, count;  // the first query, counted from that of the tile, and their number
  Interval seen;         // the keys, counted from the first key of the tile

  int64_t keys() const { return seen.end - seen.begin; }
  const float* k_rows() const { return k.data + seen.begin * k.stride; }
  const float* v_rows() const { return v.data + seen.begin * v.stride; }
  // The first number of the block in a matrix [key][query] of the tile.
  float* in(float* matrix) const { return matrix + seen.begin * kTile + begin; }
};

// Calls work(block) for all blocks of the queries row … row + rows − 1 and the keys in `ranges`. The buffers have room for kTile
// rows of keys and of values.
template <class V, class E, class Work>
inline void for_each_block(const SparseHeadParams& p, const VisiblePart& part, int64_t row, int64_t rows,
                           const Interval (&ranges)[2], float* k_buffer, float* v_buffer, const Work& work) {
  for (const auto& range : ranges)
    for (int64_t key = range.begin; key < range.end; key += kTile) {
      const auto keys = range.end - key < kTile ? range.end - key : kTile;
      const TileMask mask(part, row, rows, key, keys);
      TileBlock block{mask,
                      rows_of_keys<V, E>(p.k, part, key, keys, p.dim, k_buffer),
                      rows_of_keys<V, E>(p.v, part, key, keys, p.value_dim, v_buffer),
                      key,
                      0,
                      mask.all ? kTile : kGroup<V>,
                      {0, keys}};
      for (; block.begin < kTile; block.begin += block.count) {
        if (!mask.all) block.seen = mask.keys_of(block.begin, block.begin + block.count, keys);
        if (!block.seen.is_empty()) work(block);
      }
    }
}

// Writes the scores of a block to scores[key][query], −∞ for hidden pairs.
template <class V>
inline void store_scores(const TileBlock& block, const float* q_transposed, int64_t dim, float* scores) {
  product<V, false>(block.k_rows(), block.k.stride, 1, q_transposed + block.begin, kTile, block.keys(), dim, block.count,
                    block.in(scores), kTile);
  if (block.mask.all) return;
  const auto end = block.begin + block.count;
  for (int64_t j = block.seen.begin; j < block.seen.end; ++j)
    if (!block.mask.sees_all(j, block.begin, end))
      for (int64_t c = block.begin; c < end; c += V::kLanes)
        V::store(scores + j * kTile + c, keep_visible<V>(block.mask, j, c, V::load(scores + j * kTile + c)));
}

}  // namespace
}  // namespace attn::cpu
