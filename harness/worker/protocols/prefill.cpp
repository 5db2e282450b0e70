// The protocol "prefill": a sample makes a new decoding state, takes query_len tokens into it, and computes their outputs.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "harness/worker/protocols/whole_call.h"

namespace attnbench {
namespace {

class Prefill final : public WholeCall {
 public:
  attn::Protocol id() const override { return attn::Protocol::prefill; }

  Results call(attn::AttentionMethod& method, const CallInputs& inputs) const override {
    const at::NoGradGuard no_grad;
    Results results;
    results.state = method.begin_decoding(attn::problem_of(inputs, method.inputs()));
    results.output = method.prefill(*results.state, inputs);
    return results;
  }

  void predict(const Subject& subject, Record& record) const override {
    record.set("predicted_state_bytes", subject.method->state_bytes(subject.problem, subject.problem.query_len));
  }
};

}  // namespace

const MeasuringProtocol& prefill_protocol() {
  static const Prefill protocol;
  return protocol;
}

}  // namespace attnbench
