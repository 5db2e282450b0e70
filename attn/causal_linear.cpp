#include "attn/causal_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace attn {
namespace {

using at::Tensor;

at::ScalarType sum_dtype(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// [B,H,N,D] → [B·H,N,D], without a copy when the strides allow it.
Tensor merge_heads(const Tensor& x) { return x.flatten(0, 1); }

// One chunk of the inputs in the type of the sums, features computed, hidden keys zeroed.
struct Chunk {
  Tensor q, k, v, phi_q, phi_k;
};

// The inputs [B·H,N,·] and how to cut them.
class Sequence {
 public:
  Sequence(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& hidden_keys, const FeatureMap& map, int64_t chunk)
      : q_(merge_heads(q)), k_(merge_heads(k)), v_(merge_heads(v)), map_(map), chunk_(chunk), dtype_(sum_dtype(q)) {
    if (hidden_keys.defined()) hidden_ = merge_heads(hidden_keys.expand({q.size(0), q.size(1), q.size(2), 1}));
  }

  int64_t chunks() const { return (q_.size(1) + chunk_ - 1) / chunk_; }

  // Rows of chunk c of any tensor [B·H,N,·].
  Tensor rows(const Tensor& x, int64_t c) const { return x.narrow(1, c * chunk_, std::min(chunk_, q_.size(1) - c * chunk_)); }

  Chunk operator[](int64_t c) const {
    Chunk chunk{rows(q_, c).to(dtype_), rows(k_, c).to(dtype_), rows(v_, c).to(dtype_), {}, {}};
    chunk.phi_q = map_.apply(chunk.q);
    chunk.phi_k = map_.apply(chunk.k);
    if (hidden_.defined()) {
      const auto hidden = rows(hidden_, c);
      chunk.phi_k.masked_fill_(hidden, 0);
      chunk.v = chunk.v.masked_fill(hidden, 0);
    }
    return chunk;
  }

  // φ's derivative at the chunk, times the gradient of its features, into rows c of `out`; hidden keys get zeros.
  void store_query_gradient(const Tensor& out, int64_t c, const Chunk& chunk, const Tensor& gradient) const {
    rows(out, c).copy_(map_.gradient(chunk.q, chunk.phi_q, gradient));
  }
  void store_key_gradient(const Tensor& out, int64_t c, const Chunk& chunk, const Tensor& gradient) const {
    store_visible(out, c, map_.gradient(chunk.k, chunk.phi_k, gradient));
  }
  void store_visible(const Tensor& out, int64_t c, const Tensor& values) const {
    rows(out, c).copy_(hidden_.defined() ? values.masked_fill(rows(hidden_, c), 0) : values);
  }

  Tensor zeros(int64_t rows, int64_t columns) const { return at::zeros({q_.size(0), rows, columns}, q_.options().dtype(dtype_)); }

 private:
  Tensor q_, k_, v_, hidden_;
  const FeatureMap& map_;
  int64_t chunk_;
  at::ScalarType dtype_;
};

// The running sums S [B·H,D,M] and Z [B·H,D,1] over keys, or R and its denominator's part over queries.
struct State {
  Tensor s, z;
  State(const Sequence& sequence, int64_t features, int64_t value_dim)
      : s(sequence.zeros(features, value_dim)), z(sequence.zeros(features, 1)) {}

  // features [B·H,C,D], values [B·H,C,M], weights [B·H,C,1] or undefined for ones.
  void add(const Tensor& features, const Tensor& values, const Tensor& weights = {}) {
    const auto transposed = features.transpose(1, 2);
    s.baddbmm_(transposed, values);
    z.add_(weights.defined() ? at::bmm(transposed, weights) : transposed.sum(2, /*keepdim=*/true));
  }
};

class CausalLinear : public torch::autograd::Function<CausalLinear> {
 public:
  using Context = torch::autograd::AutogradContext;

  static Tensor forward(Context* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& hidden_keys, const std::string& feature_map, double epsilon, int64_t chunk) {
    const auto& map = find_feature_map(feature_map);
    const auto hidden = hidden_keys.value_or(Tensor());
    const Sequence sequence(q, k, v, hidden, map, chunk);
    const auto out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    const auto denominator = at::empty({q.size(0) * q.size(1), q.size(2), 1}, q.options().dtype(sum_dtype(q)));
    const auto merged_out = merge_heads(out);
    State state(sequence, q.size(3), v.size(3));
    for (int64_t c = 0; c < sequence.chunks(); ++c) {
      const auto part = sequence[c];
      const auto scores = at::bmm(part.phi_q, part.phi_k.transpose(1, 2)).tril_();
      const auto numerator = at::bmm(part.phi_q, state.s).baddbmm_(scores, part.v);
      const auto total = at::bmm(part.phi_q, state.z).add_(scores.sum(2, /*keepdim=*/true)).add_(epsilon);
      sequence.rows(merged_out, c).copy_(numerator.div_(total));
      sequence.rows(denominator, c).copy_(total);
      state.add(part.phi_k, part.v);
    }
    context->save_for_backward({q, k, v, hidden, out, denominator});
    context->saved_data["feature_map"] = feature_map;
    context->saved_data["chunk"] = chunk;
    return out;
  }

  static torch::autograd::variable_list backward(Context* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &hidden_keys = saved[3];
    const auto out = merge_heads(saved[4]);
    const auto& denominator = saved[5];
    const auto out_gradient = merge_heads(gradients[0]);
    const auto& map = find_feature_map(context->saved_data["feature_map"].toStringRef());
    const Sequence sequence(q, k, v, hidden_keys, map, context->saved_data["chunk"].toInt());

    // Gradients of the numerator and of the denominator, rows of chunk c.
    const auto part_gradients = [&](int64_t c) {
      const auto total = sequence.rows(denominator, c);
      const auto numerator = sequence.rows(out_gradient, c).to(total.scalar_type()).div(total);
      const auto rows_out = sequence.rows(out, c).to(total.scalar_type());
      return std::pair{numerator, numerator.mul(rows_out).sum(2, /*keepdim=*/true).neg_()};
    };
    // Gradient of the chunk's own scores.
    const auto score_gradient = [](const Chunk& part, const Tensor& numerator, const Tensor& total) {
      return at::bmm(numerator, part.v.transpose(1, 2)).add_(total).tril_();
    };

    const auto q_gradient = at::empty(q.sizes(), q.options());
    const auto merged_q_gradient = merge_heads(q_gradient);
    State keys(sequence, q.size(3), v.size(3));
    for (int64_t c = 0; c < sequence.chunks(); ++c) {
      const auto part = sequence[c];
      const auto [numerator, total] = part_gradients(c);
      const auto phi_gradient = at::bmm(numerator, keys.s.transpose(1, 2))
                                    .baddbmm_(total, keys.z.transpose(1, 2))
                                    .baddbmm_(score_gradient(part, numerator, total), part.phi_k);
      sequence.store_query_gradient(merged_q_gradient, c, part, phi_gradient);
      keys.add(part.phi_k, part.v);
    }

    const auto k_gradient = at::empty(k.sizes(), k.options());
    const auto v_gradient = at::empty(v.sizes(), v.options());
    const auto merged_k_gradient = merge_heads(k_gradient), merged_v_gradient = merge_heads(v_gradient);
    State queries(sequence, q.size(3), v.size(3));
    for (int64_t c = sequence.chunks() - 1; c >= 0; --c) {
      const auto part = sequence[c];
      const auto [numerator, total] = part_gradients(c);
      const auto scores = at::bmm(part.phi_q, part.phi_k.transpose(1, 2)).tril_();
      const auto phi_gradient = at::bmm(part.v, queries.s.transpose(1, 2))
                                    .add_(queries.z.transpose(1, 2))
                                    .baddbmm_(score_gradient(part, numerator, total).transpose(1, 2), part.phi_q);
      sequence.store_key_gradient(merged_k_gradient, c, part, phi_gradient);
      sequence.store_visible(merged_v_gradient, c, at::bmm(part.phi_k, queries.s).baddbmm_(scores.transpose(1, 2), numerator));
      queries.add(part.phi_q, numerator, total);
    }
    return {q_gradient, k_gradient, v_gradient, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor causal_linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const std::optional<at::Tensor>& hidden_keys, const FeatureMap& feature_map, double epsilon,
                                   int64_t chunk) {
  return CausalLinear::apply(q, k, v, hidden_keys, feature_map.name, epsilon, chunk);
}

}  // namespace attn
