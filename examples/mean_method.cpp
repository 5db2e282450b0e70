// mean: every query gets the mean of the values it may see.
#include <ATen/ATen.h>

#include "attn/registry.h"

namespace attn {
namespace {

class Mean : public AttentionMethod {
 public:
  Capabilities capabilities() const override {
    Capabilities can;
    can.causal = can.key_lengths = false;
    return can;
  }
  Cost cost(const Problem& p, Protocol protocol) const override {
    const double passes = protocol == Protocol::forward_backward ? 2 : 1;
    const double bytes = passes * (p.input_bytes() + p.output_bytes());
    return {passes * (p.value_bytes() + p.output_bytes()) / p.element_bytes(), bytes, bytes};
  }
  at::Tensor reference(const at::Tensor& q, const at::Tensor&, const at::Tensor& v, const Mask&,
                       const at::Tensor& rows) const override {
    return v.mean(2, /*keepdim=*/true).expand({q.size(0), q.size(1), rows.size(0), v.size(3)});
  }

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor&, const at::Tensor& v, const Mask&) override {
    ran("aten/mean");
    return v.mean(2, /*keepdim=*/true).expand({q.size(0), q.size(1), q.size(2), v.size(3)}).contiguous();
  }
};

const RegisterMethod registered{entry_of<Mean>("mean", "the mean of the values", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
