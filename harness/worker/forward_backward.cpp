// The protocol "forward_backward": a sample is a call of forward() and of the backward that computes the gradients of q, k and v
// from a given gradient of the output.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "harness/worker/whole_call.h"

namespace attnbench {
namespace {

class ForwardBackward final : public WholeCall {
 public:
  attn::Protocol id() const override { return attn::Protocol::forward_backward; }

  CallInputs make_inputs(const attn::Problem& problem, uint64_t seed, const InputSource& source) const override {
    return make_inputs_with_gradient(problem, seed, source);
  }

  // The gradient of an input that the output does not depend on is zero.
  Results call(attn::AttentionMethod& method, const CallInputs& inputs) const override {
    Results results;
    results.output = method.forward(inputs);
    auto gradients = torch::autograd::grad({results.output}, {inputs.q, inputs.k, inputs.v}, {inputs.grad_output},
                                           /*retain_graph=*/std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
    results.output = results.output.detach();
    const auto or_zeros = [](const at::Tensor& gradient, const at::Tensor& input) {
      return gradient.defined() ? gradient : at::zeros_like(input);
    };
    results.grad_q = or_zeros(gradients[0], inputs.q);
    results.grad_k = or_zeros(gradients[1], inputs.k);
    results.grad_v = or_zeros(gradients[2], inputs.v);
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
