// sdpa: softmax attention through PyTorch's fused operator. The record names the backend that PyTorch chose.
// stateful-sdpa: the same, which decodes with the preallocated cache of stateful-softmax. PyTorch's operator reads views of it.
#include <ATen/ATen.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "attn/reference.h"
#include "attn/registry.h"
#include "attn/sparse/cache.h"
#include "baselines/softmax.h"

namespace attn {
namespace {

std::string backend_name(int64_t choice) {
  // sdp::SDPBackend in ATen/native/transformers/sdp_utils_cpp.h; its header is not installed.
  static const char* const names[] = {"math", "flash_attention", "efficient_attention", "cudnn_attention", "overrideable"};
  TORCH_CHECK(choice >= 0 && choice < 5, "sdpa: PyTorch chose an unknown backend ", choice);
  return names[choice];
}

class Sdpa : public AttentionMethod {
 public:
  Capabilities capabilities() const override {
    Capabilities can;
    can.shared_heads = SharedHeads::repeated;
    can.causal_cross_attention = true;
    can.patterns = can.packed = true;
    can.nan_reaches_its_rows_only = false;  // PyTorch's kernels multiply hidden values by zero
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    if (p.heads_are_shared()) return cost_with_repeated_heads(cost(p.with_all_heads(), protocol), p, protocol);
    const bool lengths = !p.key_lengths.is_full();
    // PyTorch's causal mask lets query i see the keys 0 … i even if there are more keys than queries, so that this case needs an
    // explicit mask, too.
    const bool explicit_mask = lengths || !p.pattern.is_all() || !p.packed.is_none() || (p.causal && p.key_len != p.query_len);
    const double scores = p.score_count() / (p.causal && !explicit_mask ? 2 : 1);
    const double forward = scores * (2 * double(p.head_dim) + 2 * double(p.value_dim) + 5);
    const double min_bytes = p.input_bytes() + p.output_bytes();
    const bool backward = protocol == Protocol::forward_backward;
    // The operator converts an explicit mask to a tensor [B,N,L] in the dtype of q. With the causal mask, its boolean form
    // [B,N,L] is materialised as well. Key lengths also need copies of k and v with zeros at hidden positions.
    const double pairs = double(p.batch) * double(p.query_len) * double(p.key_len);
    const double mask = explicit_mask ? pairs * (p.element_bytes() + (p.causal ? 1 : 0)) : 0;
    const double masked = lengths ? (p.key_bytes() + p.value_bytes()) * (backward ? 2 : 1) : 0;
    const double matrices = materialises_scores(p) ? p.score_count() * std::max(4.0, p.element_bytes()) * (backward ? 4 : 3) : 0;
    // Beside the results, the flash kernel stores one sum per row, and in the backward pass a float32 copy of some gradients.
    const double results = backward ? p.input_bytes() + 2.6 * p.output_bytes() : 2 * p.output_bytes();
    return {backward ? 3.5 * forward : forward, backward ? 2 * min_bytes + p.input_bytes() : min_bytes,
            p.input_bytes() + (backward ? p.output_bytes() : 0) + results + mask + masked + matrices};
  }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override { return reference::softmax(inputs, rows); }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    const auto& mask = inputs.mask;
    const auto query_len = inputs.q.size(2), key_len = inputs.k.size(2);
    const auto hidden_keys = mask.hidden_keys(key_len);
    std::optional<at::Tensor> hidden, visible;
    if (mask.key_lengths || !mask.sees_all() || (mask.causal && query_len != key_len))
      hidden = mask.hidden_pairs(query_len, key_len, inputs.q.device());
    const auto empty = mask.empty_rows(query_len, key_len, inputs.q.device(), hidden);
    if (hidden) {
      visible = hidden->logical_not();
      hidden.reset();
      // Some backends return NaN for a row without a visible key. Such a row is made to see every key here, and its output is set
      // to zero below.
      if (empty) visible = visible->logical_or(*empty);
      visible = visible->expand({inputs.q.size(0), 1, query_len, key_len});
    }
    const bool causal = mask.causal && !visible;
    const auto keys = zero_where(inputs.k, hidden_keys), values = zero_where(inputs.v, hidden_keys);
    return zero_where(fused(inputs.q, keys, values, visible, causal), empty);
  }

  // softmax(qkᵀ/√D + mask) v by PyTorch's operator.
  at::Tensor fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& visible = {},
                   bool causal = false) {
    ran("sdpa/" + backend_name(at::_fused_sdp_choice(q, k, v, visible, 0.0, causal)));
    return at::scaled_dot_product_attention(q, k, v, visible, 0.0, causal);
  }

  // On the CPU the flash kernel needs head_dim = value_dim; otherwise PyTorch materialises the scores.
  static bool materialises_scores(const Problem& p) { return p.device == c10::DeviceType::CPU && p.head_dim != p.value_dim; }
};

class StatefulSdpa : public Sdpa {
 public:
  Capabilities capabilities() const override {
    auto can = Sdpa::capabilities();
    can.decoding = can.windows_in_decoding = true;
    return can;
  }

  double state_bytes(const Problem& p, int64_t) const override { return KeyValueCache::bytes_for(p); }

  Cost cost(const Problem& p, Protocol protocol) const override {
    if (protocol == Protocol::prefill) {
      auto cost = Sdpa::cost(p, Protocol::forward);
      cost.peak_bytes += state_bytes(p, p.query_len);
      return cost;
    }
    if (protocol != Protocol::decode) return Sdpa::cost(p, protocol);
    auto longer = p;
    longer.key_len = longer.query_len = p.query_len + 1;
    auto cost = cached_step_cost(p, state_bytes(longer, longer.key_len));
    if (materialises_scores(p))
      cost.peak_bytes +=
          3 * double(p.batch) * double(p.heads) * double(KeyValueCache::capacity_for(longer)) * std::max(4.0, p.element_bytes());
    return cost;
  }

 protected:
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override {
    return std::make_unique<KeyValueCache>(problem);
  }
  void absorb(DecodingState& state, const Inputs& tokens) override { static_cast<KeyValueCache&>(state).append(tokens); }
  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    const auto [k, v] = static_cast<KeyValueCache&>(state).append(token);
    return fused(token.q, k, v);
  }
};

const RegisterMethod registered{entry_of<Sdpa>("sdpa", "softmax attention through PyTorch's fused operator", "O(N²)", "O(N)")};
const RegisterMethod stateful{
    entry_of<StatefulSdpa>("stateful-sdpa", "sdpa that decodes with a preallocated cache of keys and values", "O(N²)", "O(N)")};

}  // namespace
}  // namespace attn
