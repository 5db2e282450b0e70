// Sorts positions by bucket, attends within chunks, and joins the rounds by their log-sum-exp.
#include "attn/lsh/composed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "attn/lsh/definition.h"
#include "attn/lsh/hash.h"

namespace attn {
namespace {

using at::Tensor;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The positions of each round sorted by (bucket, position), hidden ones last: int64 [G,R,N]. `lengths` [G] may be undefined.
Tensor sorted_positions(const Tensor& buckets, const Tensor& lengths) {
  auto keys = buckets.flatten(0, 1);
  if (lengths.defined()) {
    const auto positions = at::arange(keys.size(2), keys.options());
    keys = keys.masked_fill(positions >= lengths.view({-1, 1, 1}), std::numeric_limits<int64_t>::max());
  }
  return at::argsort(keys, /*stable=*/true, /*dim=*/2, /*descending=*/false);
}

// ---------------------------------------------------------------- places

// The rows `indices` (int64 [G,…]) of x [G,n,D], where indices count rows within each of the G sequences: [G,…,D].
Tensor take_rows(const Tensor& x, const Tensor& indices) {
  const auto first = at::arange(x.size(0), indices.options()).mul_(x.size(1));
  std::vector<int64_t> shape(size_t(indices.dim()), 1), result = indices.sizes().vec();
  shape[0] = x.size(0);
  result.push_back(x.size(2));
  return x.flatten(0, 1).index_select(0, indices.add(first.view(shape)).flatten()).view(result);
}

// The places of the tokens in the sorted sequences. Positions are 0…N-1. The value N stands for a place without a token and,
// among keys, for a hidden token.
struct Places {
  int64_t sequences, length, rounds, chunks, chunk;
  Tensor queries;  // int64 [G,R·C,m]
  Tensor keys;     // int64 [G,R·C,K]
  Tensor place;    // int64 [G,R,N]: the place of each position among all R·C·m

  // `order` is [G,R,N]; `lengths` is [G] or undefined.
  Places(const Tensor& order, const Tensor& lengths, int64_t wanted_chunk, bool trax)
      : sequences(order.size(0)), length(order.size(2)), rounds(order.size(1)), chunk(std::min(wanted_chunk, length)) {
    chunks = (length + chunk - 1) / chunk;
    queries = at::constant_pad_nd(order, {0, chunks * chunk - length}, length).view({sequences, rounds * chunks, chunk});
    const auto before = at::roll(queries, 1, 1);
    if (!trax || rounds * chunks == 1) before.view({sequences, rounds, chunks, chunk}).select(2, 0).fill_(length);
    keys = at::cat({queries, before}, 2);
    if (lengths.defined()) keys.masked_fill_(keys >= lengths.view({-1, 1, 1}), length);

    const auto counted = at::arange(length, order.options());
    place = at::empty_like(order).scatter_(2, order, counted.expand_as(order));
    place.add_(at::arange(rounds, order.options()).mul_(chunks * chunk).view({1, -1, 1}));
  }

  // The rows of x [G,N,D] at `positions`. Rows for places without a token are arbitrary.
  Tensor rows(const Tensor& x, const Tensor& positions) const { return take_rows(x, positions.clamp_max(length - 1)); }

  // Reorders numbers at the places of queries, [G,R·C,m], by position, [G,R,N].
  Tensor by_position(const Tensor& numbers) const {
    return numbers.reshape({sequences, 1, rounds * chunks * chunk}).expand({-1, rounds, -1}).gather(2, place);
  }
  // Reorders numbers by position, [G,R,N], to the places of queries, [G,R·C,m], with zeros at places without a token.
  Tensor by_place(const Tensor& numbers) const {
    const auto in_round = queries.view({sequences, rounds, chunks * chunk});
    return numbers.gather(2, in_round.clamp_max(length - 1)).masked_fill_(in_round == length, 0).view(queries.sizes());
  }

  // Sums rows at the places of queries, [G,R·C,m,D], over the rounds: [G,N,D]. If `factors` [G,R,N] is defined, rows are
  // multiplied by it.
  Tensor sum_over_rounds(const Tensor& at_places, const Tensor& factors = {}) const {
    const auto flat = at_places.flatten(1, 2);
    auto sum = at::zeros({sequences, length, at_places.size(3)}, at_places.options());
    for (int64_t r = 0; r < rounds; ++r) {
      const auto rows_of_round = take_rows(flat, place.select(1, r));
      if (factors.defined()) sum.addcmul_(rows_of_round, factors.select(1, r).unsqueeze(2));
      else sum.add_(rows_of_round);
    }
    return sum;
  }

  // Sums rows at the places of keys, [G,R·C,K,D], over the rounds and over the two chunks that see a key: [G,N,D].
  Tensor sum_over_seeing_chunks(const Tensor& at_keys) const {
    const auto from_own = at_keys.slice(2, 0, chunk), from_next = at_keys.slice(2, chunk);
    const auto last = rounds * chunks - 1;
    from_own.slice(1, 0, last).add_(from_next.slice(1, 1));
    from_own.select(1, last).add_(from_next.select(1, 0));
    return sum_over_rounds(from_own);
  }
};

// ---------------------------------------------------------------- chunks

// The tokens in the accumulator dtype. Entries that are not finite are replaced by zeros, because 0 · NaN would make rows NaN
// that do not see them. Their positions are marked, and the forward pass sets the rows that see them to NaN at the end.
struct Tokens {
  Tensor x;             // [G,N,D]
  Tensor scale;         // [G,N,1]: the key of x is x · scale / √D
  Tensor keys;          // [G,N,D], with the factor 1/√D
  Tensor values;        // [G,N,M]
  Tensor x_not_finite;  // bool [G,N]: whether an entry of x is not finite
  Tensor v_not_finite;  // bool [G,N]: whether an entry of the value is not finite

  Tokens(const Tensor& qk, const Tensor& v, bool trax) {
    const auto dtype = accumulator_dtype(qk.scalar_type());
    // 0 · x is 0 for finite x, and NaN otherwise.
    const auto not_finite = [](const Tensor& rows) { return rows.mul(0).sum(2).ne(0); };
    x = qk.flatten(0, 1).to(dtype);
    values = v.flatten(0, 1).to(dtype);
    x_not_finite = not_finite(x);
    v_not_finite = not_finite(values);
    x = x.nan_to_num(0, 0, 0);
    values = values.nan_to_num(0, 0, 0);
    const auto squares = x.square().sum(2, /*keepdim=*/true);
    if (trax) scale = squares.div_(double(x.size(2))).add_(kMeanSquareEpsilon).rsqrt_();
    else scale = squares.rsqrt().masked_fill_(squares == 0, 0);
    keys = (x * scale).div_(std::sqrt(double(x.size(2))));
  }

  // The gradient of x from the gradient g of the keys: (scale · g − scale³ · (x·g) · x · f) / √D, where f is 1/D for trax and 1
  // otherwise.
  Tensor key_gradient(const Tensor& gradient, bool trax) const {
    const auto dim = double(x.size(2));
    const auto along = (x * gradient).sum(2, /*keepdim=*/true).mul_(scale.pow(3)).div_(trax ? dim : 1.0);
    return (gradient * scale).addcmul_(x, along, -1).div_(std::sqrt(dim));
  }
};

// exp(logit − the row's largest logit), zero where a key is hidden or absent.
struct Exponentials {
  Tensor values;   // [G,R·C,m,K]
  Tensor hidden;   // bool [G,R·C,m or 1,K]
  Tensor largest;  // [G,R·C,m], 0 for rows that see no key
  Tensor sum;      // [G,R·C,m], 1 for rows that see no key
  Tensor sees;     // bool [G,R·C,m]: whether the row sees any key

  Exponentials(const Tensor& q, const Tensor& k, const Places& places, bool causal, bool trax) {
    values = at::matmul(q, k.transpose(2, 3));
    if (trax) {
      values.slice(3, 0, places.chunk).diagonal(0, 2, 3).sub_(kOwnPositionPenalty);
      // A query that looks back into another round may meet itself again.
      const auto first = [&](const Tensor& x) { return x.unflatten(1, {places.rounds, places.chunks}).select(2, 0); };
      const auto seen_back = first(places.keys).slice(2, places.chunk).unsqueeze(2);
      first(values)
          .slice(3, places.chunk)
          .sub_(seen_back.eq(first(places.queries).unsqueeze(3)).to(values.dtype()), kOwnPositionPenalty);
    }
    const auto keys = places.keys.unsqueeze(2);
    hidden = causal ? keys > places.queries.unsqueeze(3) : keys == places.length;
    values.masked_fill_(hidden, -INFINITY);
    largest = values.amax(3, /*keepdim=*/true);
    sees = largest.ne(-INFINITY).squeeze(3);
    largest.masked_fill_(largest == -INFINITY, 0);
    values.sub_(largest).exp_();
    sum = values.sum(3);
    sum.masked_fill_(sum == 0, 1);
    largest = largest.squeeze(3);
  }
};

// key_lengths of each of the G sequences, clamped to 0…N. Undefined if all keys are visible.
Tensor lengths_of(const LshArguments& a) {
  if (!a.key_lengths) return {};
  return a.key_lengths->clamp(0, a.qk.size(2)).unsqueeze(1).expand({a.qk.size(0), a.qk.size(1)}).flatten();
}

}  // namespace

Tensor lsh_round_shares(const Tensor& log_sum_exp, bool trax) {
  if (!trax) {
    const auto share = at::full_like(log_sum_exp, 1.0 / double(log_sum_exp.size(1)));
    return share.masked_fill_(log_sum_exp == -INFINITY, 0).masked_fill_(log_sum_exp.isnan(), kNaN);
  }
  return log_sum_exp.softmax(1).masked_fill_(log_sum_exp == -INFINITY, 0);
}

LshForward composed_lsh_forward(const LshArguments& a, const Tensor& rotations, at::OptionalIntArrayRef bucket_factors) {
  const auto lengths = lengths_of(a);
  const auto order = sorted_positions(lsh_buckets(a.qk, rotations, bucket_factors), lengths);
  const Places places(order, lengths, a.chunk, a.trax);
  Tokens tokens(a.qk, a.v, a.trax);

  auto k = places.rows(tokens.keys, places.keys);
  const Exponentials weights(places.rows(tokens.x, places.queries), k, places, a.causal, a.trax);
  k.reset();
  const auto output = at::matmul(weights.values, places.rows(tokens.values, places.keys));

  const auto log_sums = weights.largest.to(at::kDouble) + weights.sum.to(at::kDouble).log();
  auto log_sum_exp = places.by_position(log_sums.masked_fill(weights.sees.logical_not(), -INFINITY));
  // Rows that see a token that is not finite become NaN.
  const auto not_finite = tokens.x_not_finite.logical_or(tokens.v_not_finite).unsqueeze(2);
  const auto finite = places.rows(not_finite, places.keys).squeeze(3).logical_not_();
  const auto first_not_finite = places.keys.masked_fill(finite, places.length).amin(2, /*keepdim=*/true);
  const auto sees_not_finite =
      a.causal ? first_not_finite <= places.queries : (first_not_finite < places.length).expand_as(places.queries);
  const auto query_not_finite = tokens.x_not_finite.unsqueeze(1).logical_and(log_sum_exp > -INFINITY);
  log_sum_exp.masked_fill_(places.by_position(sees_not_finite).logical_or_(query_not_finite), kNaN);

  const auto factors = lsh_round_shares(log_sum_exp, a.trax).div_(places.by_position(weights.sum)).to(output.scalar_type());
  const auto summed = places.sum_over_rounds(output, factors);
  const std::vector<int64_t> per_round{a.qk.size(0), a.qk.size(1), places.rounds, places.length};
  return {summed.to(a.qk.scalar_type()).view({a.qk.size(0), a.qk.size(1), places.length, a.v.size(3)}),
          log_sum_exp.view(per_round), order.view(per_round)};
}

std::tuple<Tensor, Tensor> composed_lsh_backward(const LshArguments& a, const Tensor& grad_output, const LshForward& result) {
  const auto lengths = lengths_of(a);
  const Places places(result.order.flatten(0, 1), lengths, a.chunk, a.trax);
  const Tokens tokens(a.qk, a.v, a.trax);
  auto grad_rows = grad_output.flatten(0, 1).to(tokens.x.scalar_type());
  auto shares = lsh_round_shares(result.log_sum_exp.flatten(0, 1), a.trax);
  if (lengths.defined()) {
    // If the query of a hidden position is not finite, its row of the output is NaN. That row contributes no gradient.
    const auto positions = at::arange(places.length, lengths.options());
    const auto no_gradient = tokens.x_not_finite.logical_and(positions >= lengths.unsqueeze(1));
    grad_rows = grad_rows.masked_fill(no_gradient.unsqueeze(2), 0);
    shares.masked_fill_(no_gradient.unsqueeze(1), 0);
  }

  const auto q = places.rows(tokens.x, places.queries), k = places.rows(tokens.keys, places.keys);
  Exponentials weights(q, k, places, a.causal, a.trax);
  // Normalise the weights, so that they are the factors of the values in the output row. A row that is NaN gets NaN for the keys
  // that it sees, and zeros for other keys.
  const auto factors = places.by_place(shares).to(weights.sum.scalar_type()).div_(weights.sum);
  weights.values.mul_(factors.unsqueeze(3)).masked_fill_(weights.hidden, 0);
  auto g = places.rows(grad_rows, places.queries);
  const auto grad_v = places.sum_over_seeing_chunks(at::matmul(weights.values.transpose(2, 3), g));

  // The derivative of the softmax is w ⊙ (g·v − Σ w (g·v)). For trax the sum runs over all rounds. Otherwise it runs over one
  // round, whose weights sum to 1/R, and is multiplied by R.
  const auto grad_logits = at::matmul(g, places.rows(tokens.values, places.keys).transpose(2, 3)).mul_(weights.values);
  g.reset();
  auto sum = grad_logits.sum(3);
  if (a.trax) sum = places.by_place(places.by_position(sum).sum(1, /*keepdim=*/true).expand({-1, places.rounds, -1}));
  else sum.mul_(double(places.rounds));
  grad_logits.addcmul_(weights.values, sum.unsqueeze(3), -1).masked_fill_(weights.hidden, 0);
  weights.values.reset();

  const auto grad_keys = places.sum_over_seeing_chunks(at::matmul(grad_logits.transpose(2, 3), q));
  const auto grad_x = places.sum_over_rounds(at::matmul(grad_logits, k)).add_(tokens.key_gradient(grad_keys, a.trax));
  return {grad_x.to(a.qk.scalar_type()).view(a.qk.sizes()), grad_v.to(a.v.scalar_type()).view(a.v.sizes())};
}

}  // namespace attn
