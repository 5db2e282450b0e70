// linear: attention with a kernel feature map, φ(q)(φ(k)ᵀv) / (φ(q)·Σφ(k) + ε) ("Transformers are RNNs", 2006.16236).
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/causal_linear.h"
#include "attn/feature_map.h"
#include "attn/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

constexpr double kEpsilon = 1e-6;

class Linear : public AttentionMethod {
 public:
  explicit Linear(const Options& options) : map_(find_feature_map("elu")), chunk_(options.integer("chunk")) {}

  Cost cost(const Problem& p, Protocol protocol) const override {
    const double rows = double(p.batch) * double(p.heads);
    const double state = double(p.head_dim) * double(p.value_dim + 1);
    const double chunk = double(std::min(chunk_, p.query_len));
    // Write and read the state once a position; causal adds the triangle of scores inside each chunk.
    const double pair_flops = p.causal ? chunk * double(p.head_dim + p.value_dim + 1) * double(p.query_len) : 0;
    const double forward = rows * (2 * state * double(p.key_len + p.query_len) + 2 * pair_flops);
    const double least = p.input_bytes() + p.output_bytes();
    const bool backward = protocol == Protocol::forward_backward;
    return {backward ? 3.5 * forward : forward, backward ? 2 * least + p.input_bytes() : least,
            p.input_bytes() + (backward ? p.output_bytes() : 0) +
                (p.causal ? causal_extra_bytes(p, backward) : full_extra_bytes(p, backward))};
  }

  at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                       const at::Tensor& rows) const override {
    return reference::linear(q, k, v, mask, rows, map_, kEpsilon);
  }

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) override {
    const auto hidden_keys = mask.hidden_keys(k.size(2));
    if (mask.causal) {
      ran("aten/chunked");
      return causal_linear_attention(q, k, v, hidden_keys, map_, kEpsilon, chunk_);
    }
    ran("aten/matmul");
    const auto sums = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto phi_q = map_.apply(q.to(sums));
    const auto phi_k = zero_where(map_.apply(zero_where(k, hidden_keys).to(sums)), hidden_keys);
    const auto values = zero_where(v.to(sums), hidden_keys);
    const auto state = at::matmul(phi_k.transpose(2, 3), values);
    const auto denominator = at::matmul(phi_q, phi_k.sum(2).unsqueeze(3));
    return at::matmul(phi_q, state).div(denominator + kEpsilon).to(q.scalar_type());
  }

 private:
  // Float32 sums make half-precision inputs twice as wide.
  static double widening(const Problem& p) { return std::max(1.0, 4 / p.element_bytes()); }

  // Results, and what one chunk needs: its scores, features, products, and its inputs if they must be widened.
  double causal_extra_bytes(const Problem& p, bool backward) const {
    const double chunk = double(std::min(chunk_, p.query_len)), dims = double(p.head_dim + p.value_dim);
    const double numbers = chunk * chunk * (backward ? 2 : 1) + chunk * dims * (backward ? 3 : 2) +
                           double(p.head_dim) * double(p.value_dim + 1) +
                           (widening(p) > 1 ? chunk * (dims + double(p.head_dim)) : 0);
    const double results = p.output_bytes() + (backward ? p.input_bytes() : 0);
    return results + double(p.batch) * double(p.heads) * (numbers + double(p.query_len)) * std::max(4.0, p.element_bytes());
  }

  // Counted on the ATen composition: features and products of the size of the inputs, in the type of the sums.
  static double full_extra_bytes(const Problem& p, bool backward) {
    const double wide = widening(p), features = p.query_bytes() + p.key_bytes();
    const double composed = wide * (features + 2 * p.output_bytes()) * (backward ? 2 : 1);
    if (wide == 1) return composed + (p.key_lengths.is_full() ? 0 : p.key_bytes() + p.value_bytes());
    return composed + wide * (p.value_bytes() + (backward ? features : 0)) + p.output_bytes();
  }

  const FeatureMap& map_;
  int64_t chunk_;
};

const RegisterMethod registered{
    entry_of<Linear>("linear", "linear attention with elu(x) + 1 features; causal in chunks with constant-memory gradients",
                     "O(N)", "O(N)", {{"chunk", int64_t{128}, "positions a chunk of the causal form", {}, 1}})};

}  // namespace
}  // namespace attn
