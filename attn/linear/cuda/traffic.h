// How many bytes of global memory the tensor-core kernels of linear attention read and write. A test counts the accesses of the
// emulated kernels and holds them to this (tests/emulation/instrumented), and the model of time (attn/cuda/model) predicts with
// it. Change it together with the kernels.
#pragma once

#include <cstdint>

#include "attn/cuda/stream.h"

namespace attn::cuda {

struct LinearTrafficProblem {
  int64_t heads;  // of all batch entries
  int64_t query_len, key_len;
  int64_t head_dim, value_dim, tile_dim;
  int64_t element_bytes;
  bool causal;
  int64_t splits;  // blocks for each head
};

// Bytes that blocks read and write, where a block reads each byte of a chunk once. All keys are visible.
//
// Forward: q, k, v and the output once, the normalizers as float32, and, where there are states, k and v once more for the state
// of each split, which is written, scanned and read. Without the causal mask k and v are read for the states alone.
//
// Backward: the states of the keys as in the forward pass; a pass over the queries, which reads all of q, k, v and g and writes
// grad_q and δ; the states of the queries, from q and g; a pass over the keys, which reads all again and writes grad_k and
// grad_v.
constexpr double linear_traffic(const LinearTrafficProblem& p, Pass pass) {
  const double heads = double(p.heads), splits = double(p.splits);
  const double queries = double(p.query_len), keys = double(p.key_len), element = double(p.element_bytes);
  const double of_query = double(p.head_dim) * element, of_value = double(p.value_dim) * element, number = sizeof(float);
  const double key_rows = keys * (of_query + of_value), query_rows = queries * (of_query + of_value);
  const double state = number * (double(p.tile_dim) * double(p.tile_dim) + double(p.tile_dim));
  const bool has_states = !p.causal || p.splits > 1;
  // Each split's state is written, read and written by the scan, and read by the block that begins with it. Without the causal
  // mask the scan writes only the sum.
  const double states = has_states ? state * (p.causal ? 4 * splits : 3 * splits + 1) : 0;
  const double key_states = has_states ? key_rows + states : 0;
  if (pass == Pass::forward) return heads * (key_states + (p.causal ? key_rows : 0) + query_rows + queries * number);
  const double normalizers = 2 * queries * number;  // and the gradients of these
  // Up to 64 dimensions, the pass over the queries sums their states too.
  const double query_states = has_states ? (p.tile_dim <= 64 ? 0 : query_rows + normalizers) + states : 0;
  const double shift = 2 * splits * number * double(p.value_dim);
  const double of_queries = query_rows + (p.causal ? key_rows : 0) + normalizers + queries * of_query;
  const double of_keys = 2 * key_rows + (p.causal ? query_rows + normalizers : 0);
  return heads * (key_states + of_queries + query_states + of_keys + shift);
}

// Those of these bytes that move to and from the memory if all second reads hit the L2 cache, for which splits.h chooses groups
// of heads, and if the states stay in it.
constexpr double linear_memory_bytes(const LinearTrafficProblem& p, Pass pass) {
  const double queries = double(p.query_len), keys = double(p.key_len), element = double(p.element_bytes);
  const double of_query = double(p.head_dim) * element, of_value = double(p.value_dim) * element, number = sizeof(float);
  const double read = (queries + keys) * (of_query + of_value);
  if (pass == Pass::forward) return double(p.heads) * (read + queries * number);
  return double(p.heads) * (read + queries * of_query + keys * (of_query + of_value) + 2 * queries * number);
}

}  // namespace attn::cuda
