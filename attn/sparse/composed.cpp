// Computes the scores of all pairs, hides those that are not visible, and takes their softmax.
#include "attn/sparse/composed.h"

#include <ATen/ATen.h>

#include <limits>

#include "attn/inputs.h"

namespace attn {
namespace {

// Whether each pair is visible: bool, broadcastable to [B,U,N,L].
at::Tensor visible_pairs(const SparseArguments& a) {
  const auto query_len = a.q.size(2), key_len = a.k.size(2);
  const auto rows = at::arange(query_len, a.q.options().dtype(at::kLong));
  Mask mask{.causal = a.causal, .key_lengths = a.key_lengths, .pattern = a.pattern};
  if (a.cu_seqlens) mask.cu_seqlens = a.cu_seqlens->to(a.q.device());
  const auto visible = mask.visible_pairs(rows, query_len, key_len);
  if (!a.chosen_blocks) return visible;
  const auto& blocks = *a.chosen_blocks;
  // Entries of −1, which choose no block, are written to one more column.
  const auto count = (key_len + a.block - 1) / a.block;
  const auto chosen = at::zeros({blocks.size(0), blocks.size(1), query_len, count + 1}, blocks.options().dtype(at::kBool))
                          .scatter(3, blocks.where(blocks >= 0, count), true);
  const auto of_keys = chosen.index_select(3, at::arange(key_len, blocks.options()).div(a.block, "floor"));
  return of_keys.repeat_interleave(a.output_heads() / blocks.size(1), 1).logical_and(visible);
}

}  // namespace

SparseResults composed_sparse_forward(const SparseArguments& a) {
  const Inputs all = Inputs{a.q, a.k, a.v}.with_all_heads();
  const auto visible = visible_pairs(a);
  const auto accumulator = accumulator_dtype(a.q.scalar_type());
  // Keys and values that no query sees may be NaN, and 0 · NaN is NaN.
  const auto unread = visible.any(-2).logical_not().unsqueeze(-1);
  const auto keys = zero_where(all.k, unread).to(accumulator), values = zero_where(all.v, unread).to(accumulator);
  const auto lowest = -std::numeric_limits<double>::infinity();
  auto scores = at::matmul(all.q.to(accumulator), keys.transpose(2, 3)).mul(a.scale).masked_fill(visible.logical_not(), lowest);
  auto log_sum_exp = at::logsumexp(scores, -1);
  if (a.sinks) {
    // The gradient of logaddexp(−∞, −∞) is NaN. A sink of −∞ changes nothing.
    const auto sinks = a.sinks->view({1, -1, 1});
    const auto is_absent = sinks.isneginf();
    log_sum_exp = at::where(is_absent, log_sum_exp, at::logaddexp(log_sum_exp, sinks.masked_fill(is_absent, 0)));
  }
  // For a query that sees no key, −∞ − −∞ would be NaN.
  const auto finite = log_sum_exp.masked_fill(log_sum_exp == lowest, 0);
  const auto weights = (scores - finite.unsqueeze(-1)).exp();
  return {at::matmul(weights, values).to(a.q.scalar_type()), log_sum_exp};
}

}  // namespace attn
