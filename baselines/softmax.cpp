// softmax: softmax(qkᵀ/√D + mask) v with a materialised matrix of scores, as measured in Figure 1 of "Transformers are RNNs".
#include "baselines/softmax.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/implementations.h"
#include "attn/reference.h"
#include "attn/registry.h"
#include "attn/sparse/cache.h"
#include "attn/triangular.h"

namespace attn {
namespace {

// The queries, keys and values of all tokens so far.
class Prefix : public DecodingState {
 public:
  explicit Prefix(const Problem& p) {
    const auto rows = [&](int64_t dim) {
      return at::empty({p.batch, p.heads, p.key_len, dim}, at::TensorOptions(p.dtype).device(p.device));
    };
    q = rows(p.head_dim);
    k = rows(p.head_dim);
    v = rows(p.value_dim);
  }
  at::Tensor q, k, v;

 protected:
  std::vector<at::Tensor> tensors() const override { return {q, k, v}; }
};

const RegisterMethod registered{
    entry_of<Softmax>("softmax", "softmax attention with a materialised matrix of scores", "O(N²)", "O(N²)")};

// The product of the weights [B,H,N,L] of a causal call with the values [B,H,L,M]. Like lower_triangular_product(), it lets a NaN
// in a value reach the rows that see the value, and no others.
at::Tensor causal_product(const at::Tensor& weights, const at::Tensor& values) {
  const auto queries = weights.size(2), keys = weights.size(3);
  if (keys == queries) return lower_triangular_product(weights, values);
  if (keys < queries) {  // the first rows see nothing
    const auto rest = lower_triangular_product(weights.narrow(2, queries - keys, keys), values);
    return at::constant_pad_nd(rest, {0, 0, queries - keys, 0});
  }
  const auto seen_by_all = at::matmul(weights.narrow(3, 0, keys - queries), values.narrow(2, 0, keys - queries));
  return seen_by_all +
         lower_triangular_product(weights.narrow(3, keys - queries, queries), values.narrow(2, keys - queries, queries));
}

}  // namespace

at::Tensor materialised_softmax(const Inputs& inputs) {
  const auto &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const auto& mask = inputs.mask;
  const auto hidden_keys = mask.hidden_keys(k.size(2));
  const auto scale = 1 / std::sqrt(double(q.size(3)));
  auto scores = at::matmul(q * scale, zero_where(k, hidden_keys).transpose(2, 3));
  // Backward of matmul does not need its result, so the scores may be overwritten.
  auto hidden = mask.hidden_pairs(q.size(2), k.size(2), q.device());
  if (hidden) scores.masked_fill_(*hidden, -INFINITY);
  // The softmax of a row that holds only -inf would be NaN. The scores of a row that sees no key are therefore set to zero here,
  // and its output is set to zero below.
  const auto empty = mask.empty_rows(q.size(2), k.size(2), q.device(), hidden);
  hidden.reset();
  if (empty) scores.masked_fill_(*empty, 0);
  const auto weights =
      inputs.sinks.defined() ? softmax_with_sinks(scores, inputs.sinks.view({1, -1, 1, 1})) : at::softmax(scores, -1);
  scores.reset();
  const auto values = zero_where(v, hidden_keys);
  return zero_where(mask.causal && mask.sees_all() ? causal_product(weights, values) : at::matmul(weights, values), empty);
}

Cost materialised_softmax_cost(const Problem& p, bool backward) {
  const double scores = p.score_count();
  const double forward = scores * (2 * double(p.head_dim) + 2 * double(p.value_dim) + 5);
  // The scores with those of sinks are a matrix of their own, in the accumulator dtype as their weights.
  const double sinks = p.sinks ? scores * double(c10::elementSize(accumulator_dtype(p.dtype))) : 0;
  const double matrix = scores * p.element_bytes() + sinks;
  // A mask takes one byte per pair: [N,L] if it is only causal, [B,1,L] with key lengths, [B,N,L] with both.
  const double pairs = double(p.query_len) * double(p.key_len);
  const bool by_pair = p.causal || !p.pattern.is_all() || !p.packed.is_none();
  const double mask = p.key_lengths.is_full() ? (by_pair ? pairs : 0) : double(p.batch) * (by_pair ? pairs : double(p.key_len));
  const double masked_inputs = (p.key_lengths.is_full() ? 0 : p.key_bytes() + p.value_bytes()) + (p.causal ? p.value_bytes() : 0);
  const double inputs_and_masks = p.input_bytes() + p.output_bytes() + mask + masked_inputs + p.query_bytes();
  // The forward pass holds the scores and the weights; the backward pass holds the weights, their gradient and the gradient of
  // the scores.
  if (!backward) return {forward, p.input_bytes() + p.output_bytes(), inputs_and_masks + 2 * matrix};
  return {forward * 3, 2 * (p.input_bytes() + p.output_bytes()) + p.input_bytes(),
          inputs_and_masks + p.input_bytes() + p.output_bytes() + 3 * matrix};
}

Capabilities Softmax::capabilities() const {
  Capabilities can;
  can.shared_heads = SharedHeads::repeated;
  can.causal_cross_attention = true;
  can.patterns = can.packed = true;
  can.decoding = true;
  can.steps_recompute_prefix = true;
  can.inputs.push_back(find_input("sinks"));
  return can;
}

Cost Softmax::cost(const Problem& p, Protocol protocol) const {
  if (p.heads_are_shared()) return cost_with_repeated_heads(cost(p.with_all_heads(), protocol), p, protocol);
  if (protocol == Protocol::forward || protocol == Protocol::forward_backward)
    return materialised_softmax_cost(p, protocol == Protocol::forward_backward);
  if (protocol == Protocol::prefill) {
    auto cost = materialised_softmax_cost(p, false);
    cost.peak_bytes += state_bytes(p, p.query_len);
    return cost;
  }
  auto longer = p;
  longer.query_len = longer.key_len = p.query_len + 1;
  auto cost = materialised_softmax_cost(longer, false);
  cost.peak_bytes += state_bytes(longer, longer.key_len) - longer.input_bytes();
  return cost;
}

at::Tensor Softmax::reference(const Inputs& inputs, const at::Tensor& rows) const { return reference::softmax(inputs, rows); }

double Softmax::state_bytes(const Problem& p, int64_t) const { return p.query_bytes() + p.key_bytes() + p.value_bytes(); }

at::Tensor Softmax::attend(const Inputs& inputs) {
  ran("aten/materialised");
  return materialised_softmax(inputs);
}

std::unique_ptr<DecodingState> Softmax::make_state(const Problem& problem) const { return std::make_unique<Prefix>(problem); }

void Softmax::absorb(DecodingState& state, const Inputs& tokens) {
  const auto& prefix = static_cast<Prefix&>(state);
  for (const auto& [all, rows] : {std::pair{prefix.q, tokens.q}, {prefix.k, tokens.k}, {prefix.v, tokens.v}})
    all.narrow(2, state.position(), rows.size(2)).copy_(rows);
}

at::Tensor Softmax::decode(DecodingState& state, const Inputs& token) {
  ran("aten/recomputed-prefix");
  absorb(state, token);
  const auto& prefix = static_cast<Prefix&>(state);
  const auto rows = [&](const at::Tensor& all) { return all.narrow(2, 0, state.position() + 1); };
  Inputs all{rows(prefix.q), rows(prefix.k), rows(prefix.v), {.causal = true}};
  all.sinks = token.sinks;
  return materialised_softmax(all).narrow(2, state.position(), 1);
}

Capabilities CachedSoftmax::capabilities() const {
  auto can = Softmax::capabilities();
  can.steps_recompute_prefix = false;
  return can;
}

Cost CachedSoftmax::cost(const Problem& p, Protocol protocol) const {
  if (protocol != Protocol::decode) return Softmax::cost(p, protocol == Protocol::prefill ? Protocol::forward : protocol);
  auto longer = p;
  longer.key_len = longer.query_len = p.query_len + 1;
  auto cost = cached_step_cost(p, state_bytes(longer, longer.key_len));
  // Scores and weights of the keys that the token sees.
  cost.peak_bytes += 2 * double(p.batch) * double(p.heads) * double(KeyValueCache::capacity_for(longer)) * p.element_bytes();
  return cost;
}

}  // namespace attn
