// efficient: Efficient Attention (1812.01243): softmax over the dims of q, softmax over the positions of k, then q(kᵀv).
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "attn/registry.h"

namespace attn {
namespace {

class Efficient : public AttentionMethod {
 public:
  Capabilities capabilities() const override {
    Capabilities can;
    can.causal = false;
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    const double rows = double(p.batch) * double(p.heads);
    const double forward = rows * double(p.head_dim) * (2 * double(p.value_dim) + 5) * double(p.key_len + p.query_len);
    const bool backward = protocol == Protocol::forward_backward;
    const double least = p.input_bytes() + p.output_bytes();
    // Counted on the composition: softmax of q or of k, what is widened, and what is masked.
    const double wide = std::max(1.0, 4 / p.element_bytes()), weights = wide * (p.query_bytes() + p.key_bytes());
    const double widened = wide > 1 ? wide * (p.value_bytes() + p.output_bytes()) : 0;
    if (!backward) {
      const double masked = wide > 1 || p.key_lengths.is_full() ? 0 : p.key_bytes();
      return {forward, least, p.input_bytes() + p.output_bytes() + weights / 2 + widened + (wide > 1 ? weights / 2 : 0) + masked};
    }
    return {3 * forward, 2 * least + p.input_bytes(),
            2 * (p.input_bytes() + p.output_bytes()) + weights + widened + p.key_bytes()};
  }

  at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                       const at::Tensor& rows) const override {
    const auto hidden_keys = mask.hidden_keys(k.size(2));
    const auto of_queries = q.index_select(2, rows).exp();
    const auto of_keys = zero_where(zero_where(k, hidden_keys).exp(), hidden_keys);
    const auto total = of_keys.sum(2, /*keepdim=*/true);
    const auto weights = at::matmul(of_queries / of_queries.sum(3, /*keepdim=*/true),
                                    (of_keys / at::where(total == 0, at::ones_like(total), total)).transpose(2, 3));
    return at::matmul(weights, zero_where(v, hidden_keys));
  }

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) override {
    ran("aten/matmul");
    const auto hidden_keys = mask.hidden_keys(k.size(2));
    const auto empty = mask.empty_entries();
    const auto sums = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    auto keys = k.to(sums);
    if (hidden_keys) keys = keys.masked_fill(*hidden_keys, -INFINITY);
    keys = zero_where(keys, empty);  // a column of -inf alone would be NaN
    const auto state = at::matmul(at::softmax(keys, 2).transpose(2, 3), zero_where(v, hidden_keys).to(sums));
    return at::matmul(at::softmax(q.to(sums), 3), state).to(q.scalar_type());
  }
};

const RegisterMethod registered{
    entry_of<Efficient>("efficient", "Efficient Attention: softmax over the dims of q and the positions of k", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
