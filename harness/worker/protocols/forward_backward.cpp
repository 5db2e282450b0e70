// The protocol "forward_backward": a sample is a call of forward() and of the backward that computes the gradients of the inputs
// from a given gradient of the output.
#include <ATen/ATen.h>

#include "harness/worker/protocols/whole_call.h"

namespace attnbench {
namespace {

class ForwardBackward final : public WholeCall {
 public:
  attn::Protocol id() const override { return attn::Protocol::forward_backward; }

  CallInputs make_inputs(const attn::Problem& problem, uint64_t seed, const InputSource& source) const override {
    return make_inputs_with_gradient(problem, seed, source);
  }

  Results call(attn::AttentionMethod& method, const CallInputs& inputs) const override {
    Results results;
    results.output = method.forward(inputs);
    results.gradients = gradients_of(results.output, inputs.grad_output, inputs, method.inputs());
    results.output = results.output.detach();
    return results;
  }

 protected:
  // Uses a forward of its own, because a backward frees what its forward saved piece by piece.
  int64_t measure_saved_bytes(const Subject& subject, const CallInputs& inputs, Record& record) const override {
    const auto meter = subject.device->make_meter();
    at::Tensor output;
    const auto elapsed = subject.device->time([&] { output = subject.method->forward(inputs); });
    add_measured_s(record, elapsed.wall_s);
    return meter->current_bytes() - bytes_of(output);
  }
};

}  // namespace

const MeasuringProtocol& forward_backward_protocol() {
  static const ForwardBackward protocol;
  return protocol;
}

}  // namespace attnbench
