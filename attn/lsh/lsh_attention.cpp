// LSH attention as a composition of ATen operations, forward and backward, for any device.
//
// Shapes: G = B·H sequences of N tokens, R rounds, m = min(chunk, N) places a chunk, C = ⌈N/m⌉ chunks a round, K = 2m keys a
// query: those of its chunk, then those of the chunk before. Large are only [G,R·C,m,K] (weights) and [G,R·C,K,D or M] (keys,
// values), never N×N.
#include "attn/lsh/lsh_attention.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "attn/lsh/implementation.h"

namespace attn {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Own position of the trax profile: any other visible key outweighs it.
constexpr double kOwnPositionPenalty = 1e5;
constexpr double kMeanSquareEpsilon = 1e-6;
constexpr int64_t kLargestUnfactored = 128;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::ScalarType sum_dtype(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// ---------------------------------------------------------------- hash

// argmax [y; −y] over the last dimension, the first of equals.
Tensor nearest_axis(const Tensor& y) {
  const auto [most, at_most] = y.max(-1);
  const auto [least, at_least] = y.min(-1);
  return at::where(most >= least.neg(), at_most, at_least + y.size(-1));
}

// int64 [G,R,N]: the positions of each round in the order of (bucket, position), hidden keys last.
Tensor sorted_positions(const Tensor& buckets, const Tensor& lengths) {
  auto keys = buckets.flatten(0, 1);
  if (lengths.defined()) {
    const auto positions = at::arange(keys.size(2), keys.options());
    keys = keys.masked_fill(positions >= lengths.view({-1, 1, 1}), std::numeric_limits<int64_t>::max());
  }
  return at::argsort(keys, /*stable=*/true, /*dim=*/2, /*descending=*/false);
}

// ---------------------------------------------------------------- places

// Rows `indices` (int64, any shape) of x [G,n,D], counted in each of the G on its own: [...indices,D].
Tensor take_rows(const Tensor& x, const Tensor& indices) {
  const auto first = at::arange(x.size(0), indices.options()).mul_(x.size(1));
  std::vector<int64_t> shape(size_t(indices.dim()), 1), result = indices.sizes().vec();
  shape[0] = x.size(0);
  result.push_back(x.size(2));
  return x.flatten(0, 1).index_select(0, indices.add(first.view(shape)).flatten()).view(result);
}

// Where the tokens lie. Positions are 0…N-1; N stands at places that no token fills and, among keys, for hidden ones.
struct Places {
  int64_t sequences, length, rounds, chunks, chunk;
  Tensor queries;  // int64 [G,R·C,m]
  Tensor keys;     // int64 [G,R·C,K]
  Tensor place;    // int64 [G,R,N]: the place of each position among all R·C·m

  // order [G,R,N]; lengths [G] or undefined.
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

  // Rows of x [G,N,D] at the places of `positions`; what stands where no token is does not matter.
  Tensor rows(const Tensor& x, const Tensor& positions) const { return take_rows(x, positions.clamp_max(length - 1)); }

  // Numbers at the places of queries [G,R·C,m], by position: [G,R,N].
  Tensor by_position(const Tensor& numbers) const {
    return numbers.reshape({sequences, 1, rounds * chunks * chunk}).expand({-1, rounds, -1}).gather(2, place);
  }
  // The way back; zeros at places without a token.
  Tensor by_place(const Tensor& numbers) const {
    const auto in_round = queries.view({sequences, rounds, chunks * chunk});
    return numbers.gather(2, in_round.clamp_max(length - 1)).masked_fill_(in_round == length, 0).view(queries.sizes());
  }

  // Σ over rounds of rows at the places of queries [G,R·C,m,D], times factors [G,R,N] if there are: [G,N,D].
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

  // Σ over the two chunks that see a key and over rounds, of rows at the places of keys [G,R·C,K,D]: [G,N,D].
  Tensor sum_over_lookers(const Tensor& at_keys) const {
    const auto own = at_keys.slice(2, 0, chunk), from_next = at_keys.slice(2, chunk);
    const auto last = rounds * chunks - 1;
    own.slice(1, 0, last).add_(from_next.slice(1, 1));
    own.select(1, last).add_(from_next.select(1, 0));
    return sum_over_rounds(own);
  }
};

// ---------------------------------------------------------------- chunks

// The tokens in the type of the sums, with zeros for what is not finite: 0 · NaN would reach rows that do not see it. Such
// positions are marked, and the rows that see them made NaN in the end.
struct Tokens {
  Tensor x;             // [G,N,D]
  Tensor scale;         // [G,N,1]: x · scale · 1/√D is the key
  Tensor keys;          // [G,N,D], 1/√D included
  Tensor values;        // [G,N,M]
  Tensor x_not_finite;  // bool [G,N]
  Tensor v_not_finite;  // bool [G,N]

  Tokens(const Tensor& qk, const Tensor& v, bool trax) {
    const auto dtype = sum_dtype(qk);
    // 0 · x is zero but for what is not finite.
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

  // The gradient of x from that of the keys: scale · g − scale³ · (x·g) x · (1/D, if it was a mean), all over √D.
  Tensor key_gradient(const Tensor& gradient, bool trax) const {
    const auto dim = double(x.size(2));
    const auto along = (x * gradient).sum(2, /*keepdim=*/true).mul_(scale.pow(3)).div_(trax ? dim : 1.0);
    return (gradient * scale).addcmul_(x, along, -1).div_(std::sqrt(dim));
  }
};

// exp(logits − the row's largest), zero where a key is hidden or absent.
struct Exponentials {
  Tensor values;   // [G,R·C,m,K]
  Tensor hidden;   // bool [G,R·C,m or 1,K]
  Tensor largest;  // [G,R·C,m]
  Tensor sum;      // [G,R·C,m], one for rows that see nothing
  Tensor sees;     // bool [G,R·C,m]: anything at all

  Exponentials(const Tensor& q, const Tensor& k, const Places& at, bool causal, bool trax) {
    values = at::matmul(q, k.transpose(2, 3));
    if (trax) {
      values.slice(3, 0, at.chunk).diagonal(0, 2, 3).sub_(kOwnPositionPenalty);
      // Looking back into another round, a query may meet itself again.
      const auto first = [&](const Tensor& x) { return x.unflatten(1, {at.rounds, at.chunks}).select(2, 0); };
      const auto seen_back = first(at.keys).slice(2, at.chunk).unsqueeze(2);
      first(values).slice(3, at.chunk).sub_(seen_back.eq(first(at.queries).unsqueeze(3)).to(values.dtype()), kOwnPositionPenalty);
    }
    const auto keys = at.keys.unsqueeze(2);
    hidden = causal ? keys > at.queries.unsqueeze(3) : keys == at.length;
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

// The share of each round in a row's output, from log_sum_exp [G,R,N]: NaN where that is, zero where nothing was seen.
Tensor round_shares(const Tensor& log_sum_exp, bool trax) {
  if (!trax) {
    const auto share = at::full_like(log_sum_exp, 1.0 / double(log_sum_exp.size(1)));
    return share.masked_fill_(log_sum_exp == -INFINITY, 0).masked_fill_(log_sum_exp.isnan(), kNaN);
  }
  return log_sum_exp.softmax(1).masked_fill_(log_sum_exp == -INFINITY, 0);
}

// key_lengths for each of the B·H sequences, within 0…N.
Tensor lengths_of(const OptionalTensor& key_lengths, const Tensor& qk) {
  if (!key_lengths) return {};
  return key_lengths->clamp(0, qk.size(2)).unsqueeze(1).expand({qk.size(0), qk.size(1)}).flatten();
}

// ---------------------------------------------------------------- primitives

const kernels::LshImplementation* implementation_for(const Tensor& qk, const Tensor& v, std::string_view wanted) {
  return kernels::find_lsh({std::string(wanted), qk.scalar_type(), qk.device().type(), qk.size(3), v.size(3)});
}

// The output; log_sum_exp, float64 [B,H,R,N], of each row in each round; the order of positions, int64 [B,H,R,N].
// In float32 a logit of −1e5 has no digits left for the logarithm of a sum: hence float64.
std::tuple<Tensor, Tensor, Tensor> forward_primitive(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk,
                                                     bool causal, const OptionalTensor& key_lengths, std::string_view profile,
                                                     at::OptionalIntArrayRef bucket_factors, std::string_view kernel) {
  const bool trax = profile == kTrax;
  if (const auto* own = implementation_for(qk, v, kernel))
    return own->forward(qk, v, rotations, chunk, causal, key_lengths, trax, bucket_factors);
  const auto lengths = lengths_of(key_lengths, qk);
  const auto order = sorted_positions(lsh_buckets(qk, rotations, bucket_factors), lengths);
  const Places at(order, lengths, chunk, trax);
  Tokens tokens(qk, v, trax);

  auto k = at.rows(tokens.keys, at.keys);
  const Exponentials weights(at.rows(tokens.x, at.queries), k, at, causal, trax);
  k.reset();
  const auto output = at::matmul(weights.values, at.rows(tokens.values, at.keys));

  const auto log_sums = weights.largest.to(at::kDouble) + weights.sum.to(at::kDouble).log();
  auto log_sum_exp = at.by_position(log_sums.masked_fill(weights.sees.logical_not(), -INFINITY));
  // A row that sees what is not finite is not a number in any of its rounds.
  const auto not_finite = tokens.x_not_finite.logical_or(tokens.v_not_finite).unsqueeze(2);
  const auto harmless = at.rows(not_finite, at.keys).squeeze(3).logical_not_();
  const auto first = at.keys.masked_fill(harmless, at.length).amin(2, /*keepdim=*/true);
  const auto reached = causal ? first <= at.queries : (first < at.length).expand_as(at.queries);
  const auto nan_query = tokens.x_not_finite.unsqueeze(1).logical_and(log_sum_exp > -INFINITY);
  log_sum_exp.masked_fill_(at.by_position(reached).logical_or_(nan_query), kNaN);

  const auto factors = round_shares(log_sum_exp, trax).div_(at.by_position(weights.sum)).to(output.scalar_type());
  const auto rounds = at.sum_over_rounds(output, factors);
  const std::vector<int64_t> per_round{qk.size(0), qk.size(1), at.rounds, at.length};
  return {rounds.to(qk.scalar_type()).view({qk.size(0), qk.size(1), at.length, v.size(3)}), log_sum_exp.view(per_round),
          order.view(per_round)};
}

// The gradients of qk and v; the rest is what the forward was given and gave.
std::tuple<Tensor, Tensor> backward_primitive(const Tensor& gradient, const Tensor& qk, const Tensor& v, const Tensor& output,
                                              const OptionalTensor& key_lengths, const Tensor& log_sum_exp, const Tensor& order,
                                              int64_t chunk, bool causal, std::string_view profile, std::string_view kernel) {
  const bool trax = profile == kTrax;
  if (const auto* own = implementation_for(qk, v, kernel)) {
    const auto shares = round_shares(log_sum_exp.flatten(0, 1), trax);
    return own->backward(gradient, qk, v, output, key_lengths, log_sum_exp, order, shares, chunk, causal, trax);
  }
  const auto lengths = lengths_of(key_lengths, qk);
  const Places at(order.flatten(0, 1), lengths, chunk, trax);
  const Tokens tokens(qk, v, trax);
  auto row_gradient = gradient.flatten(0, 1).to(tokens.x.scalar_type());
  auto shares = round_shares(log_sum_exp.flatten(0, 1), trax);
  if (lengths.defined()) {
    // What is not finite in a hidden position's query has spoilt its own row; no gradient comes from there.
    const auto positions = at::arange(at.length, lengths.options());
    const auto spoilt = tokens.x_not_finite.logical_and(positions >= lengths.unsqueeze(1));
    row_gradient = row_gradient.masked_fill(spoilt.unsqueeze(2), 0);
    shares.masked_fill_(spoilt.unsqueeze(1), 0);
  }

  const auto q = at.rows(tokens.x, at.queries), k = at.rows(tokens.keys, at.keys);
  Exponentials weights(q, k, at, causal, trax);
  // From here each entry's share in the output row. A row that is NaN is so at the keys it sees, and zero at others.
  const auto factors = at.by_place(shares).to(weights.sum.scalar_type()).div_(weights.sum);
  weights.values.mul_(factors.unsqueeze(3)).masked_fill_(weights.hidden, 0);
  auto g = at.rows(row_gradient, at.queries);
  const auto v_gradient = at.sum_over_lookers(at::matmul(weights.values.transpose(2, 3), g));

  // The softmax's derivative, w ⊙ (g·v − Σ w (g·v)), its sum going over all rounds (trax) or over the row's own, where the
  // weights sum to 1/R.
  const auto logit_gradient = at::matmul(g, at.rows(tokens.values, at.keys).transpose(2, 3)).mul_(weights.values);
  g.reset();
  auto sum = logit_gradient.sum(3);
  if (trax) sum = at.by_place(at.by_position(sum).sum(1, /*keepdim=*/true).expand({-1, at.rounds, -1}));
  else sum.mul_(double(at.rounds));
  logit_gradient.addcmul_(weights.values, sum.unsqueeze(3), -1).masked_fill_(weights.hidden, 0);
  weights.values.reset();

  const auto from_keys = at.sum_over_lookers(at::matmul(logit_gradient.transpose(2, 3), q));
  const auto x_gradient = at.sum_over_rounds(at::matmul(logit_gradient, k)).add_(tokens.key_gradient(from_keys, trax));
  return {x_gradient.to(qk.scalar_type()).view(qk.sizes()), v_gradient.to(v.scalar_type()).view(v.sizes())};
}

std::tuple<Tensor, Tensor, Tensor> forward_meta(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t, bool,
                                                const OptionalTensor&, std::string_view, at::OptionalIntArrayRef,
                                                std::string_view) {
  const auto batch = qk.sym_size(0), heads = qk.sym_size(1), length = qk.sym_size(2), rounds = rotations.sym_size(1);
  const std::vector<c10::SymInt> per_round{batch, heads, rounds, length};
  return {at::empty_symint({batch, heads, length, v.sym_size(3)}, qk.options()),
          at::empty_symint(per_round, qk.options().dtype(at::kDouble)),
          at::empty_symint(per_round, qk.options().dtype(at::kLong))};
}

std::tuple<Tensor, Tensor> backward_meta(const Tensor&, const Tensor& qk, const Tensor& v, const Tensor&, const OptionalTensor&,
                                         const Tensor&, const Tensor&, int64_t, bool, std::string_view, std::string_view) {
  return {at::empty_symint(qk.sym_sizes(), qk.options()), at::empty_symint(v.sym_sizes(), v.options())};
}

template <class Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

auto call_forward(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk, bool causal,
                  const OptionalTensor& key_lengths, std::string_view profile, at::OptionalIntArrayRef bucket_factors,
                  std::string_view kernel) {
  static const auto op = operator_named<decltype(forward_primitive)>("attn::_lsh_attention");
  return op.call(qk, v, rotations, chunk, causal, key_lengths, profile, bucket_factors, kernel);
}

class LshAttention : public torch::autograd::Function<LshAttention> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& qk, const Tensor& v,
                                                const Tensor& rotations, int64_t chunk, bool causal,
                                                const OptionalTensor& key_lengths, std::string_view profile,
                                                at::OptionalIntArrayRef bucket_factors, std::string_view kernel) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [output, log_sum_exp, order] =
        call_forward(qk, v, rotations, chunk, causal, key_lengths, profile, bucket_factors, kernel);
    context->save_for_backward({qk, v, output, key_lengths.value_or(Tensor()), log_sum_exp, order});
    context->saved_data["chunk"] = chunk;
    context->saved_data["causal"] = causal;
    context->saved_data["profile"] = std::string(profile);
    context->saved_data["kernel"] = std::string(kernel);
    context->mark_non_differentiable({log_sum_exp, order});
    return {output, log_sum_exp, order};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    static const auto op = operator_named<decltype(backward_primitive)>("attn::_lsh_attention_backward");
    const auto saved = context->get_saved_variables();
    const auto key_lengths = saved[3].defined() ? OptionalTensor(saved[3]) : std::nullopt;
    const auto [qk_gradient, v_gradient] =
        op.call(gradients[0], saved[0], saved[1], saved[2], key_lengths, saved[4], saved[5], context->saved_data["chunk"].toInt(),
                context->saved_data["causal"].toBool(), context->saved_data["profile"].toStringRef(),
                context->saved_data["kernel"].toStringRef());
    return {qk_gradient, v_gradient, {}, {}, {}, {}, {}, {}, {}};
  }
};

std::tuple<Tensor, Tensor, Tensor> forward_autograd(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk,
                                                    bool causal, const OptionalTensor& key_lengths, std::string_view profile,
                                                    at::OptionalIntArrayRef bucket_factors, std::string_view kernel) {
  auto results = LshAttention::apply(qk, v, rotations, chunk, causal, key_lengths, profile, bucket_factors, kernel);
  return {results[0], results[1], results[2]};
}

// ---------------------------------------------------------------- arguments

void check_tensor(const char* name, const Tensor& tensor, const char* shape, int64_t dims) {
  TORCH_CHECK_VALUE(tensor.defined(), "lsh_attention: ", name, " is not defined");
  TORCH_CHECK_VALUE(tensor.dim() == dims, "lsh_attention: ", name, " has shape ", tensor.sym_sizes(), ", expected ", shape);
}

void check_same_device(const char* name, const Tensor& tensor, const Tensor& qk) {
  TORCH_CHECK_VALUE(tensor.device() == qk.device(), "lsh_attention: ", name, " is on ", tensor.device(), " but qk is on ",
                    qk.device());
}

void check_rotations(const Tensor& rotations, const Tensor& qk, at::OptionalIntArrayRef factors) {
  check_tensor("rotations", rotations, "[dim, rounds, columns]", 3);
  check_same_device("rotations", rotations, qk);
  TORCH_CHECK_VALUE(at::isFloatingType(rotations.scalar_type()), "lsh_attention: rotations are ", rotations.scalar_type(),
                    ", expected a floating type");
  TORCH_CHECK_VALUE(rotations.sym_size(0) == qk.sym_size(3), "lsh_attention: rotations have shape ", rotations.sym_sizes(),
                    ", expected dim ", qk.sym_size(3), " as in qk");
  TORCH_CHECK_VALUE(rotations.sym_size(1) >= 1 && rotations.sym_size(2) >= 1, "lsh_attention: rotations have shape ",
                    rotations.sym_sizes(), ", expected at least one round and one column");
  if (!factors) return;
  TORCH_CHECK_VALUE(
      factors->size() == 2 && (*factors)[0] >= 2 && (*factors)[1] >= 2 && (*factors)[0] % 2 == 0 && (*factors)[1] % 2 == 0,
      "lsh_attention: bucket_factors = ", *factors, ", expected two even numbers of at least 2");
  TORCH_CHECK_VALUE(rotations.sym_size(2) == ((*factors)[0] + (*factors)[1]) / 2, "lsh_attention: rotations have ",
                    rotations.sym_size(2), " columns, expected ", ((*factors)[0] + (*factors)[1]) / 2,
                    ", half the sum of bucket_factors = ", *factors);
}

void check_arguments(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk, const OptionalTensor& key_lengths,
                     std::string_view profile, at::OptionalIntArrayRef bucket_factors) {
  check_tensor("qk", qk, "[batch, heads, length, dim]", 4);
  check_tensor("v", v, "[batch, heads, length, dim]", 4);
  check_same_device("v", v, qk);
  TORCH_CHECK_VALUE(at::isFloatingType(qk.scalar_type()), "lsh_attention: qk is ", qk.scalar_type(),
                    ", expected a floating type");
  TORCH_CHECK_VALUE(v.scalar_type() == qk.scalar_type(), "lsh_attention: v is ", v.scalar_type(), " but qk is ",
                    qk.scalar_type());
  for (int64_t dim = 0; dim < 3; ++dim)
    TORCH_CHECK_VALUE(v.sym_size(dim) == qk.sym_size(dim), "lsh_attention: v has shape ", v.sym_sizes(),
                      ", expected batch, heads and length of qk, ", qk.sym_sizes());
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"qk", qk}, {"v", v}})
    TORCH_CHECK_VALUE(tensor.sym_size(2) >= 1 && tensor.sym_size(3) >= 1, "lsh_attention: ", name, " has shape ",
                      tensor.sym_sizes(), ", expected length and dim of at least 1");
  check_rotations(rotations, qk, bucket_factors);
  TORCH_CHECK_VALUE(chunk >= 1, "lsh_attention: chunk = ", chunk, ", expected at least 1");
  TORCH_CHECK_VALUE(profile == kTrax || profile == kFastTransformers, "lsh_attention: profile = '", profile, "', expected '",
                    kTrax, "' or '", kFastTransformers, "'");
  if (!key_lengths) return;
  check_tensor("key_lengths", *key_lengths, "[batch]", 1);
  check_same_device("key_lengths", *key_lengths, qk);
  TORCH_CHECK_VALUE(key_lengths->scalar_type() == at::kLong, "lsh_attention: key_lengths is ", key_lengths->scalar_type(),
                    ", expected int64");
  TORCH_CHECK_VALUE(key_lengths->sym_size(0) == qk.sym_size(0), "lsh_attention: key_lengths has shape ", key_lengths->sym_sizes(),
                    ", expected [batch] = [", qk.sym_size(0), "]");
}

}  // namespace

at::Tensor lsh_attention(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& rotations, int64_t chunk, bool causal,
                         const std::optional<at::Tensor>& key_lengths, std::string_view profile,
                         at::OptionalIntArrayRef bucket_factors, std::string_view kernel) {
  check_arguments(qk, v, rotations, chunk, key_lengths, profile, bucket_factors);
  return std::get<0>(call_forward(qk, v, rotations, chunk, causal, key_lengths, profile, bucket_factors, kernel));
}

// Both profiles hash alike: fast-transformers hashes x / ‖x‖, and a vector's length does not move the argmax.
at::Tensor lsh_buckets(const at::Tensor& qk, const at::Tensor& rotations, at::OptionalIntArrayRef bucket_factors) {
  const auto rounds = rotations.size(1), columns = rotations.size(2);
  const auto turned = at::matmul(qk.detach().to(at::kDouble), rotations.detach().to(at::kDouble).flatten(1))
                          .view({qk.size(0), qk.size(1), qk.size(2), rounds, columns});
  if (!bucket_factors) return nearest_axis(turned).transpose(2, 3).contiguous();
  const auto d = (*bucket_factors)[0], e = (*bucket_factors)[1];
  const auto first = nearest_axis(turned.narrow(4, 0, d / 2)), second = nearest_axis(turned.narrow(4, d / 2, e / 2));
  return first.add(second, d).transpose(2, 3).contiguous();
}

std::optional<std::vector<int64_t>> bucket_factors_of(int64_t buckets) {
  if (buckets <= kLargestUnfactored) return std::nullopt;
  int64_t d = 2;
  while (d * d < buckets) d *= 2;
  return std::vector<int64_t>{d, 2 * (buckets / (2 * d))};
}

at::Tensor draw_rotations(int64_t head_dim, int64_t rounds, int64_t buckets, uint64_t seed, at::Device device) {
  TORCH_CHECK_VALUE(head_dim >= 1, "draw_rotations: head_dim = ", head_dim, ", expected at least 1");
  TORCH_CHECK_VALUE(rounds >= 1, "draw_rotations: rounds = ", rounds, ", expected at least 1");
  TORCH_CHECK_VALUE(buckets >= 2 && buckets % 2 == 0, "draw_rotations: buckets = ", buckets,
                    ", expected an even number of at least 2");
  const auto factors = bucket_factors_of(buckets);
  const auto columns = factors ? ((*factors)[0] + (*factors)[1]) / 2 : buckets / 2;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({head_dim, rounds, columns}, generator, at::TensorOptions(at::kDouble)).to(device);
}

TORCH_LIBRARY_FRAGMENT(attn, m) {
  m.def(
      "lsh_attention(Tensor qk, Tensor v, Tensor rotations, int chunk, bool causal, Tensor? key_lengths=None, "
      "str profile=\"trax\", int[]? bucket_factors=None, str implementation=\"auto\") -> Tensor",
      lsh_attention);
  m.def(
      "_lsh_attention(Tensor qk, Tensor v, Tensor rotations, int chunk, bool causal, Tensor? key_lengths, str profile, "
      "int[]? bucket_factors, str implementation=\"auto\") -> (Tensor output, Tensor log_sum_exp, Tensor order)");
  m.def(
      "_lsh_attention_backward(Tensor gradient, Tensor qk, Tensor v, Tensor output, Tensor? key_lengths, Tensor log_sum_exp, "
      "Tensor order, int chunk, bool causal, str profile, str implementation=\"auto\") -> (Tensor qk_gradient, Tensor "
      "v_gradient)");
}

TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, m) {
  m.impl("_lsh_attention", forward_primitive);
  m.impl("_lsh_attention_backward", backward_primitive);
}
TORCH_LIBRARY_IMPL(attn, Meta, m) {
  m.impl("_lsh_attention", forward_meta);
  m.impl("_lsh_attention_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(attn, Autograd, m) {
  m.impl("_lsh_attention", forward_autograd);
  m.impl("_lsh_attention_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace attn
