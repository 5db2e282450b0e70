// Computes the buckets, the softmax within chunks and the sum over rounds in float64, pair by pair.
#include "attn/lsh/reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/lsh/definition.h"
#include "attn/lsh/hash.h"

namespace attn::reference {
namespace {

using at::Tensor;

constexpr int64_t kTopKeys = 16;

// The softmax of logits [B,H,R,N] in which each key counts as often as `times` [B,H,R,N] says. A key with 0 is hidden, and a row
// without visible keys gives zeros.
Tensor softmax_over(const Tensor& logits, const Tensor& times) {
  const auto hidden = times == 0;
  const auto largest = logits.detach().masked_fill(hidden, -std::numeric_limits<double>::max()).amax(-1, /*keepdim=*/true);
  const auto weights = (logits - largest).masked_fill(hidden, -INFINITY).exp() * times;
  const auto total = weights.sum(-1, /*keepdim=*/true);
  return weights / total.masked_fill(total == 0, 1);
}

Tensor buckets_of(const LshSettings& s, const Tensor& qk) {
  const auto buckets = s.buckets_for(qk.size(2));
  const auto factors = bucket_factors_of(buckets);
  return lsh_buckets(qk, draw_rotations(qk.size(3), s.rounds, buckets, s.seed, qk.device()), at::OptionalIntArrayRef(factors));
}

// The chunk of every position in every round, int64 [B,H,rounds,N].
Tensor chunks_of(const LshSettings& s, const Tensor& buckets, const std::optional<Tensor>& key_lengths) {
  const auto length = buckets.size(3);
  const auto positions = at::arange(length, buckets.options());
  auto sort_keys = buckets * length + positions;
  if (key_lengths) {
    const auto hidden = positions >= key_lengths->view({-1, 1, 1, 1});
    sort_keys = at::where(hidden, std::numeric_limits<int64_t>::max() / 2 + positions, sort_keys);
  }
  const auto places = sort_keys.argsort(int64_t{-1}).argsort(int64_t{-1});
  return places.floor_divide(std::min(s.chunk, length));
}

// How often each of `rows` meets each key in round r, not counting masks: float64 [B,H,R,N].
Tensor times_met(const LshSettings& s, const Tensor& chunks, const Tensor& rows, int64_t r) {
  const auto length = chunks.size(3), last = (length - 1) / std::min(s.chunk, length);
  const auto here = chunks.select(2, r).unsqueeze(2), row = here.index_select(3, rows).transpose(2, 3);
  auto times = here.eq(row).to(at::kDouble) + here.eq(row - 1);
  if (s.trax() && s.rounds * (last + 1) > 1) {
    const auto before = chunks.select(2, (r + s.rounds - 1) % s.rounds).unsqueeze(2);
    times = times + before.eq(last).logical_and(row.eq(0));
  }
  return times;
}

// Where the key is at the position of the row: bool [1,1,R,N].
Tensor own_position(const Tensor& rows, int64_t length) {
  return at::arange(length, rows.options()).view({1, 1, 1, -1}) == rows.view({1, 1, -1, 1});
}

// The logits of `rows` and all keys [B,H,R,N]. In the trax profile they include the penalty for the own position.
Tensor exact_logits(const LshSettings& s, const Tensor& qk, const Mask& mask, const Tensor& rows) {
  const auto x = zero_where(qk, mask.hidden_keys(qk.size(2)));
  const auto squares = x.square().sum(-1, /*keepdim=*/true);
  const auto zero = squares == 0;
  const auto keys =
      s.trax() ? x * (squares / double(qk.size(3)) + kMeanSquareEpsilon).rsqrt() : x * squares.masked_fill(zero, 1).rsqrt();
  const auto logits = at::matmul(qk.index_select(2, rows), keys.transpose(2, 3)) / std::sqrt(double(qk.size(3)));
  return s.trax() ? logits - own_position(rows, qk.size(2)).to(at::kDouble) * kOwnPositionPenalty : logits;
}

// Computes the diagnostics lsh_bucket_mean and lsh_bucket_skew; returns nothing if there is no visible key.
std::vector<std::pair<std::string, double>> occupancy(const LshSettings& s, const Tensor& buckets, const Mask& mask,
                                                      int64_t length) {
  const auto factors = bucket_factors_of(s.buckets_for(length));
  const auto count = factors ? (*factors)[0] * (*factors)[1] : s.buckets_for(length);
  auto hashed = at::ones_like(buckets);
  if (mask.key_lengths) hashed.masked_fill_(mask.hidden_keys(length)->transpose(2, 3), 0);
  const auto keys = at::zeros({buckets.size(0), buckets.size(1), s.rounds, count}, buckets.options())
                        .scatter_add_(3, buckets, hashed)
                        .to(at::kDouble);
  const auto total = keys.sum(-1), used = (keys > 0).sum();
  if (used.item<int64_t>() == 0) return {};
  const auto skew = keys.amax(-1) * double(count) / total.clamp_min(1);
  return {{"lsh_bucket_mean", (total.sum() / used).item<double>()}, {"lsh_bucket_skew", skew.max().item<double>()}};
}

double mean_where(const Tensor& condition, const Tensor& values) { return values.masked_select(condition).mean().item<double>(); }

}  // namespace

Tensor lsh(const LshSettings& s, const Inputs& inputs, const Tensor& rows) {
  const auto &qk = inputs.q, &v = inputs.v;
  const auto& mask = inputs.mask;
  const auto length = qk.size(2);
  const auto chunks = chunks_of(s, buckets_of(s, qk), mask.key_lengths);
  const auto visible = mask.visible_pairs(rows, length, length);
  const auto logits = exact_logits(s, qk, mask, rows);
  const auto values = zero_where(v, mask.hidden_keys(length));
  // To weight the rounds by their log-sum-exp is the same as one softmax over the keys of all rounds together.
  if (s.trax()) {
    auto times = times_met(s, chunks, rows, 0).mul(visible);
    for (int64_t r = 1; r < s.rounds; ++r) times = times + times_met(s, chunks, rows, r).mul(visible);
    return at::matmul(softmax_over(logits, times), values);
  }
  auto sum = at::matmul(softmax_over(logits, times_met(s, chunks, rows, 0).mul(visible)), values);
  for (int64_t r = 1; r < s.rounds; ++r)
    sum = sum + at::matmul(softmax_over(logits, times_met(s, chunks, rows, r).mul(visible)), values);
  return sum / double(s.rounds);
}

ExactAttention lsh_exact(const LshSettings& s, const Inputs& inputs, const Tensor& rows) {
  const auto &qk = inputs.q, &v = inputs.v;
  const auto& mask = inputs.mask;
  const auto visible = mask.visible_pairs(rows, qk.size(2), qk.size(2)).to(at::kDouble);
  const auto weights = softmax_over(exact_logits(s, qk, mask, rows), visible);
  return {at::matmul(weights, zero_where(v, mask.hidden_keys(qk.size(2)))), weights};
}

std::vector<std::pair<std::string, double>> lsh_diagnostics(const LshSettings& s, const Inputs& inputs, const Tensor& rows) {
  const at::NoGradGuard no_grad;
  const auto& qk = inputs.q;
  const auto& mask = inputs.mask;
  const auto length = qk.size(2);
  const auto buckets = buckets_of(s, qk);
  auto diagnostics = occupancy(s, buckets, mask, length);

  const auto chunks = chunks_of(s, buckets, mask.key_lengths);
  const auto visible = mask.visible_pairs(rows, length, length);
  auto seen = times_met(s, chunks, rows, 0) > 0;
  for (int64_t r = 1; r < s.rounds; ++r) seen.logical_or_(times_met(s, chunks, rows, r) > 0);
  const auto logits = exact_logits(s, qk, mask, rows);

  auto eligible = visible;
  if (s.trax()) eligible = eligible.logical_and(own_position(rows, length).logical_not());
  eligible = eligible.expand_as(logits);
  const auto [top, keys] = logits.masked_fill(eligible.logical_not(), -INFINITY).topk(std::min(kTopKeys, length), -1);
  const auto is_key = top > -INFINITY;
  const auto found = seen.gather(-1, keys).logical_and(is_key).sum(-1).to(at::kDouble), expected = is_key.sum(-1);
  if (const auto has_keys = expected > 0; has_keys.any().item<bool>())
    diagnostics.emplace_back("lsh_top16_share", mean_where(has_keys, found / expected));
  if (const auto has_keys = visible.expand_as(logits).any(-1); has_keys.any().item<bool>()) {
    const auto covered = softmax_over(logits, visible.to(at::kDouble)).mul(seen).sum(-1);
    diagnostics.emplace_back("lsh_mass_covered", mean_where(has_keys, covered));
  }
  return diagnostics;
}

}  // namespace attn::reference
