// Registers the method mla: multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) in the form in which it decodes. All
// heads share one vector for each position. It is the key, and its first value_dim entries are the value, so the state stores it
// once. Models multiply the projections of keys and values, and a factor other than 1/√D, into the queries and the output.
#include <ATen/ATen.h>

#include "attn/reference.h"
#include "attn/registry.h"
#include "attn/sparse/cache.h"
#include "attn/sparse/sparse_attention.h"
#include "attn/sparse/sparse_method.h"

namespace attn {
namespace {

using at::Tensor;

// The shared vectors of all tokens so far.
class LatentCache : public DecodingState {
 public:
  explicit LatentCache(const Problem& p)
      : latents_(at::empty({p.batch, p.key_head_count(), p.key_len, p.head_dim}, at::TensorOptions(p.dtype).device(p.device))) {}

  // Throws c10::ValueError unless v holds the first entries of k. Returns the vectors of all tokens.
  Tensor append(const Inputs& tokens) {
    const auto &k = tokens.k, &v = tokens.v;
    const auto first = k.narrow(3, 0, v.size(3));
    // In measurements v is a view of k, and then need not be compared with it. The comparison takes NaNs as equal.
    if (v.data_ptr() != k.data_ptr() || v.strides() != k.strides())
      TORCH_CHECK_VALUE(at::allclose(v, first, 0, 0, /*equal_nan=*/true), "v differs from the first ", v.size(3),
                        " entries of k, expected a view of them, since mla stores k alone");
    latents_.narrow(2, position(), k.size(2)).copy_(k);
    return latents_.narrow(2, 0, position() + k.size(2));
  }

 protected:
  std::vector<Tensor> tensors() const override { return {latents_}; }

 private:
  Tensor latents_;  // [B,G,capacity,D]
};

class LatentAttention : public SparseMethod {
 public:
  explicit LatentAttention(const Options& options) : SparseMethod(options, ValueHeads::as_keys) {}

  Capabilities capabilities() const override {
    Capabilities can;
    can.shared_heads = SharedHeads::read;
    can.causal_cross_attention = can.decoding = true;
    can.gradients = false;  // Models are trained in another form, in which every head has keys and values of its own.
    can.nan_reaches_its_rows_only = false;
    can.inputs = {find_input("q"), find_input("k"), find_input("v")};
    can.inputs.back().draw = InputDraw::first_of_keys;
    return can;
  }

  std::optional<std::string> why_unsupported(const Problem& p, Protocol protocol) const override {
    if (p.value_dim > p.head_dim)
      return "mla needs value_dim ≤ head_dim, since values are the first entries of keys; here they are " +
             std::to_string(p.value_dim) + " and " + std::to_string(p.head_dim);
    return SparseMethod::why_unsupported(p, protocol);
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    const double heads = double(p.batch) * double(p.output_head_count());
    if (protocol == Protocol::decode) {
      auto longer = p;
      longer.key_len = longer.query_len = p.query_len + 1;
      auto cost = cached_step_cost(p, state_bytes(longer, longer.key_len));
      cost.peak_bytes += 2 * heads * double(longer.key_len) * p.element_bytes();  // scores and weights
      return cost;
    }
    const double share = (p.key_lengths.is_full() ? 1 : 0.5);
    const double pairs = heads * share * count_pairs(visible_parts(p.pattern, p.causal, p.query_len, p.key_len, p.key_len));
    auto cost = cost_of_pairs(p, pairs, /*joins_parts=*/false, /*backward=*/false);
    cost.min_bytes -= p.value_bytes();
    cost.peak_bytes += protocol == Protocol::prefill ? state_bytes(p, p.query_len) - p.value_bytes() : -p.value_bytes();
    return cost;
  }

  double state_bytes(const Problem& p, int64_t) const override { return p.key_bytes(); }

  Tensor reference(const Inputs& inputs, const Tensor& rows) const override { return reference::softmax(inputs, rows); }

 protected:
  Tensor attend(const Inputs& inputs) override {
    const auto name = run(inputs);
    return std::get<0>(
        sparse_attention(inputs.q, inputs.k, inputs.v,
                         {.causal = inputs.mask.causal, .key_lengths = inputs.mask.key_lengths, .implementation = name}));
  }

  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override {
    return std::make_unique<LatentCache>(problem);
  }
  void absorb(DecodingState& state, const Inputs& tokens) override { static_cast<LatentCache&>(state).append(tokens); }

  Tensor decode(DecodingState& state, const Inputs& token) override {
    const auto latents = static_cast<LatentCache&>(state).append(token);
    ran("aten/latent cache");
    return attend_to_cache(token.q, latents, latents.narrow(3, 0, token.v.size(3)));
  }
};

const RegisterMethod registered_mla{entry_of<LatentAttention>(
    "mla", "multi-head latent attention as it decodes: values are the first entries of keys, stored once", "O(N²)", "O(N)",
    {implementation_option({"avx512", "avx2", "neon", "portable"})})};

}  // namespace
}  // namespace attn
