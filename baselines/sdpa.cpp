// sdpa: softmax attention through PyTorch's fused operator. The backend that PyTorch chose is recorded.
#include <ATen/ATen.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "attn/reference.h"
#include "attn/registry.h"

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
    can.nan_reaches_its_rows_only = false;  // PyTorch's kernels multiply hidden weights of zero
    return can;
  }

  std::optional<at::Tensor> approximated(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                                         const at::Tensor& rows) const override {
    return reference(q, k, v, mask, rows);
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    const double scores = p.score_count() / (p.causal && p.key_lengths.is_full() ? 2 : 1);
    const double forward = scores * (2 * double(p.head_dim) + 2 * double(p.value_dim) + 5);
    const double least = p.input_bytes() + p.output_bytes();
    const bool backward = protocol == Protocol::forward_backward;
    // Key lengths need an explicit mask: numbers [B,N,L] inside the operator, and with causal as many booleans before; and k and
    // v with their hidden positions zeroed.
    const bool lengths = !p.key_lengths.is_full();
    const double pairs = double(p.batch) * double(p.query_len) * double(p.key_len);
    const double mask = lengths ? pairs * (p.element_bytes() + (p.causal ? 1 : 0)) : 0;
    const double masked = lengths ? (p.key_bytes() + p.value_bytes()) * (backward ? 2 : 1) : 0;
    // On the CPU the flash kernel wants head_dim = value_dim; else the scores are materialised.
    const bool math = p.device == c10::DeviceType::CPU && p.head_dim != p.value_dim;
    const double matrices = math ? p.score_count() * std::max(4.0, p.element_bytes()) * (backward ? 4 : 3) : 0;
    // Beside the results the flash kernel keeps sums of each row, and backward a float32 copy of some gradients.
    const double results = backward ? p.input_bytes() + 2.6 * p.output_bytes() : 2 * p.output_bytes();
    return {backward ? 3.5 * forward : forward, backward ? 2 * least + p.input_bytes() : least,
            p.input_bytes() + (backward ? p.output_bytes() : 0) + results + mask + masked + matrices};
  }

  at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                       const at::Tensor& rows) const override {
    return reference::softmax(q, k, v, mask, rows);
  }

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) override {
    const auto hidden_keys = mask.hidden_keys(k.size(2));
    const auto empty = mask.empty_entries();
    std::optional<at::Tensor> visible;
    if (mask.key_lengths) {
      visible = ~*mask.hidden_pairs(q.size(2), k.size(2), q.device());
      // A row without a visible key is NaN in some backends; evened out here, zeroed below.
      visible = visible->logical_or(*empty).expand({q.size(0), 1, q.size(2), k.size(2)});
    }
    const bool causal = mask.causal && !visible;
    const auto keys = zero_where(k, hidden_keys), values = zero_where(v, hidden_keys);
    ran("sdpa/" + backend_name(at::_fused_sdp_choice(q, keys, values, visible, 0.0, causal)));
    return zero_where(at::scaled_dot_product_attention(q, keys, values, visible, 0.0, causal), empty);
  }
};

const RegisterMethod registered{entry_of<Sdpa>("sdpa", "softmax attention through PyTorch's fused operator", "O(N²)", "O(N)")};

}  // namespace
}  // namespace attn
