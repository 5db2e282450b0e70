// VisiblePart: a set of visible pairs (query, key) in a form that kernels can process tile by tile.
//
// The pairs that a mask leaves visible are divided into parts (attn/sparse/visible_parts.h). A part has some of the queries, its
// rows t, and some of the keys, its keys u; both are at regular positions, or the queries are those of a list. The rows that see
// a key form at most two intervals, and the keys that a tile of rows sees lie within at most two intervals, so kernels skip the
// other keys and need no matrix of visible pairs. This header does not include LibTorch.
#pragma once

#include <cstdint>

namespace attn {

// The numbers begin … end − 1.
struct Interval {
  int64_t begin = 0, end = 0;
  bool is_empty() const { return begin >= end; }
  int64_t size() const { return is_empty() ? 0 : end - begin; }
};

struct VisiblePart {
  // Which keys a row at place x sees. Places are counted like the keys u: row t is at the place t + shift.
  enum class Relation {
    band,     // keys with low ≤ x − u < high, except x − u = 0 with `without_own`; and all keys u < first
    block,    // keys of the same block of `block` places
    chosen,   // all keys; row t is the query queries[t], and these rise with t
    summary,  // keys of earlier blocks of `block` places; each block has `columns` keys: key u belongs to block u / columns
  };
  static constexpr int64_t kUnbounded = int64_t{1} << 60;

  Relation relation = Relation::band;
  // Row t is query query_begin + t · step, and key u is position key_begin + u · step. The keys of a summary are the last
  // `columns` positions of each `block` positions from key_begin on; its step is 1.
  int64_t query_begin = 0, key_begin = 0, step = 1;
  int64_t rows = 0, keys = 0;
  int64_t shift = 0;
  int64_t low = -kUnbounded, high = kUnbounded;
  bool without_own = false;
  bool causal = false;      // a row sees no key u > x, whatever the relation says
  int64_t first = 0;        // all rows see the keys u < first
  int64_t global_rows = 0;  // the rows at places 0 … global_rows − 1 see all keys
  int64_t block = 0, columns = 0;
  const int64_t* queries = nullptr;  // for Relation::chosen, whose step is 1; otherwise null

  // The query of row t.
  int64_t query(int64_t t) const { return queries ? queries[t] : query_begin + t * step; }

  // The position of key u.
  int64_t position(int64_t u) const {
    return key_begin + (relation == Relation::summary ? u / columns * block + block - columns + u % columns : u * step);
  }

  // Sets the rows among begin … end − 1 that see key u: `one` and `other`, which do not overlap.
  void rows_that_see(int64_t u, int64_t begin, int64_t end, Interval& one, Interval& other) const {
    int64_t from = -kUnbounded, to = kUnbounded;
    other = {};
    if (queries) {
      one = {causal ? first_row_at(key_begin + u, begin, end) : begin, end};
      return;
    }
    switch (relation) {
      case Relation::band:
        if (u < first) break;
        from = u + low;
        to = u + high;
        if (without_own && low < 0) {
          other = clipped(u + 1, to, begin, end);
          to = u;
        }
        break;
      case Relation::block: from = floor_of_block(u), to = from + block; break;
      case Relation::summary: from = (u / columns + 1) * block; break;
      case Relation::chosen: break;
    }
    if (causal && from < u) from = u;
    one = clipped(from, to, begin, end);
    if (global_rows > 0 && !causal && u >= first) {
      // The global rows see the key as well. Intervals that touch are joined.
      auto global = clipped(0, global_rows, begin, end);
      if (one.is_empty()) one = global;
      else if (!global.is_empty() && global.end >= one.begin && one.end >= global.begin)
        one = {one.begin < global.begin ? one.begin : global.begin, one.end > global.end ? one.end : global.end};
      else other = global;
    }
  }

  // Sets intervals that contain all keys that some of the rows begin … end − 1 see: `one` and, after it, `other`. They do not
  // overlap, and may contain keys that no row sees.
  void keys_that_are_seen(int64_t begin, int64_t end, Interval& one, Interval& other) const {
    if (queries) {
      const auto last = begin < end ? queries[end - 1] + shift : 0;
      one = {0, causal && last - key_begin + 1 < keys ? last - key_begin + 1 : keys};
      other = {};
      return;
    }
    const auto from = begin + shift, to = end + shift;  // places
    Interval local{0, keys};
    switch (relation) {
      case Relation::band:
        if (low >= high) local = {};
        if (high < kUnbounded) local.begin = from - high + 1;
        if (low > -kUnbounded) local.end = to - low;
        break;
      case Relation::block: local = {floor_of_block(from), floor_of_block(to - 1) + block}; break;
      case Relation::summary: local.end = floor_of_block(to - 1) / block * columns; break;
      case Relation::chosen: break;
    }
    if (!causal && from < global_rows && to > 0) local = {0, keys};
    if (causal && relation != Relation::summary && local.end > to) local.end = to;
    local = limited(local);
    one = {0, first < keys ? first : keys};
    if (causal && one.end > to) one.end = to;
    if (local.is_empty()) {
      other = {};
    } else if (one.end >= local.begin) {
      one.end = one.end > local.end ? one.end : local.end;
      other = {};
    } else if (one.is_empty()) {
      one = local;
      other = {};
    } else {
      other = local;
    }
  }

 private:
  // The first of the rows begin … end − 1 whose query is at `position` or after it; `end` if there is none.
  int64_t first_row_at(int64_t position, int64_t begin, int64_t end) const {
    while (begin < end) {
      const auto middle = begin + (end - begin) / 2;
      if (queries[middle] + shift < position) begin = middle + 1;
      else end = middle;
    }
    return begin;
  }
  int64_t floor_of_block(int64_t place) const { return (place >= 0 ? place / block : (place - block + 1) / block) * block; }
  Interval limited(Interval x) const { return {x.begin > 0 ? x.begin : 0, x.end < keys ? x.end : keys}; }
  // The rows begin … end − 1 whose places are from … to − 1.
  Interval clipped(int64_t from, int64_t to, int64_t begin, int64_t end) const {
    const auto first_row = from - shift, last_row = to - shift;
    return {first_row > begin ? first_row : begin, last_row < end ? last_row : end};
  }
};

}  // namespace attn
