// mean: the output of every query is the mean of all values.
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
  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    return mean_of_values(inputs, rows.size(0));
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    ran("aten/mean");
    return mean_of_values(inputs, inputs.q.size(2)).contiguous();
  }

 private:
  static at::Tensor mean_of_values(const Inputs& inputs, int64_t rows) {
    return inputs.v.mean(2, /*keepdim=*/true).expand({-1, -1, rows, -1});
  }
};

const RegisterMethod registered{entry_of<Mean>("mean", "the mean of the values", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
