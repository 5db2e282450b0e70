// The protocol "forward": a sample is a call of forward() that records no gradients.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "harness/worker/protocols/whole_call.h"

namespace attnbench {
namespace {

class Forward final : public WholeCall {
 public:
  attn::Protocol id() const override { return attn::Protocol::forward; }

  Results call(attn::AttentionMethod& method, const CallInputs& inputs) const override {
    const at::NoGradGuard no_grad;
    Results results;
    results.output = method.forward(inputs);
    return results;
  }
};

}  // namespace

const MeasuringProtocol& forward_protocol() {
  static const Forward protocol;
  return protocol;
}

}  // namespace attnbench
