// The forward pass of recurrent attention, chunk by chunk.
#pragma once

#include "attn/recurrent/cpu/chunk.h"

namespace attn::cpu {
namespace {

template <class V, class E, bool kDelta, bool kFeatures>
class RecurrentForward : RecurrentChunk<V, E, kDelta, kFeatures> {
  using Chunk = RecurrentChunk<V, E, kDelta, kFeatures>;
  using Chunk::b_, Chunk::p_, Chunk::features_;

 public:
  RecurrentForward(const RecurrentHeadParams& p, void* scratch) : Chunk(p, scratch, /*backward=*/false) {}

  // RecurrentKernels::forward
  void run(int64_t begin, int64_t end, float* s, float* checkpoints) {
    const int64_t size = state_size(p_);
    const bool has_outputs = p_.q.data != nullptr;
    for (int64_t first = begin; first < end; first += kChunkRows) {
      const auto count = end - first < kChunkRows ? end - first : int64_t{kChunkRows};
      if (checkpoints && (first - begin) % kCheckpoint == 0) {
        copy(s, size, checkpoints);
        checkpoints += size;
      }
      Chunk::load(first, count, has_outputs);
      Chunk::compute_updates(s);
      if (has_outputs) {
        Chunk::score_queries();
        write_outputs(first, count, s);
      }
      Chunk::update(s, s);
    }
  }

 private:
  static void copy(const float* from, int64_t size, float* to) {
    for (int64_t i = 0; i < size; i += V::kLanes) V::store(to + i, V::load(from + i));
  }

  void write_outputs(int64_t first, int64_t count, const float* s) {
    if constexpr (kFeatures) features_.multiply_columns_by_edge(b_.left_q, b_.left_q);
    else Chunk::scaled_columns(b_.left_q, b_.e, b_.left_q);
    const ReadTile tile{b_.left_q, s, b_.keys, b_.values, b_.pairs_qk, b_.u, b_.values, b_.products};
    const RowStore<V, E> to(p_.output, first, count, p_.value_dim, 2 * kChunkRows);
    if (to.takes_whole_chunk()) return read_rows<V, Triangle::lower>(tile, {to.floats(), to.stride, b_.scales});
    float* outputs = kDelta ? b_.v : b_.products;  // With the delta rule the rows of v are no longer needed.
    read_rows<V, Triangle::lower>(tile, {outputs, b_.values, b_.scales});
    to.store_rows(outputs, b_.values, count);
  }
};

}  // namespace
}  // namespace attn::cpu
