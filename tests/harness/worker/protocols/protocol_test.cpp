// Tests of the measuring protocols: their names, the call that each one times, and the minimum number of calls of a case.
#include "harness/worker/protocols/protocol.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/causal_mean.h"
#include "tests/support/errors_of.h"
#include "tests/support/gated.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

TEST(FindProtocol, FindsAProtocolByItsName) {
  for (const auto* name : {"forward", "forward_backward", "prefill", "decode"})
    EXPECT_EQ(protocol_name(attnbench::find_protocol(name).id()), name);
  EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([] { attnbench::find_protocol("backward"); }),
                  "protocol = 'backward', expected forward, forward_backward, prefill or decode");
}

TEST(MinCalls, CountTimedAndOtherCalls) {
  for (const auto* name : {"forward", "forward_backward", "prefill"}) {
    const auto calls = attnbench::find_protocol(name).min_calls(9);
    EXPECT_EQ(calls.timed, 9) << name;
    EXPECT_EQ(calls.other, 4) << name;
  }
  // Decode makes whole rounds of 32 steps, of which 20 are timed.
  for (const auto& [min_samples, rounds] : {std::pair{1, 1}, {20, 1}, {21, 2}}) {
    const auto calls = attnbench::find_protocol("decode").min_calls(min_samples);
    EXPECT_EQ(calls.timed, 20 * rounds) << min_samples;
    EXPECT_EQ(calls.other, 12 * rounds + 5);
  }
}

// A method whose output does not depend on k, like LSH attention, which uses the queries as keys.
class IgnoresKeys : public AttentionMethod {
 public:
  Cost cost(const Problem&, Protocol) const override { return {}; }
  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    return (inputs.q * inputs.v).index_select(2, rows);
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override { return inputs.q * inputs.v; }
};
const RegisterMethod ignores_keys{entry_of<IgnoresKeys>("test-ignores-keys", "q times v", "O(N)", "O(N)")};

TEST(Call, TheGradientOfAnUnusedInputIsZero) {
  const auto problem = problem_of({6, 6, 4, 4}, at::kFloat, Masking::none);
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const auto method = make_method("test-ignores-keys");
  auto results = call(*method, inputs, Protocol::forward_backward);
  EXPECT_TRUE(at::equal(results.gradients.k, at::zeros_like(inputs.k)));
  EXPECT_TRUE(at::equal(results.gradients.q, inputs.grad_output * inputs.v.detach()));
  const auto everything = Selection::everything(problem);
  EXPECT_TRUE(compare(*method, inputs, results, everything).within(1e-6));
  results.gradients.k = at::ones_like(inputs.k);
  EXPECT_FALSE(compare(*method, inputs, results, everything).within(0.1));
}

// A method whose gradient of a further tensor is missing would be timed too fast.
TEST(Call, TheGradientOfAFurtherTensorIsComputedAndCompared) {
  const auto problem = problem_of({40, 40, 4, 4}, at::kFloat, Masking::causal);
  const auto everything = Selection::everything(problem);
  Gated right, wrong(/*drops_gradient=*/true);
  const auto inputs = inputs_of(right, problem, Protocol::forward_backward);
  const auto results = call(right, inputs, Protocol::forward_backward);
  ASSERT_EQ(results.gradients.g.sizes(), inputs.g.sizes());
  EXPECT_TRUE(compare(right, inputs, results, everything).within(1e-5));
  EXPECT_EQ(attnbench::bytes_of(results),
            attnbench::bytes_of(inputs.grad_output) + attnbench::bytes_of(static_cast<const Inputs&>(inputs)));
  const auto found = compare(wrong, inputs, call(wrong, inputs, Protocol::forward_backward), everything);
  EXPECT_FALSE(found.within(1e-2));
  EXPECT_EQ(found.worst, "gradient of g");
}

TEST(Call, PrefillGivesTheOutputsAndTheState) {
  CausalMean mean(CausalMean::Flaw::none);
  const auto inputs = inputs_of(problem_of({6, 6, 4, 4}, at::kFloat, Masking::causal), Protocol::prefill);
  const auto results = call(mean, inputs, Protocol::prefill);
  ASSERT_TRUE(results.state);
  EXPECT_EQ(results.state->position(), 6);
  EXPECT_TRUE(compare(mean, inputs, results, Selection::everything(results.state->problem())).within(1e-6));
  EXPECT_FALSE(call(mean, inputs, Protocol::forward).state);
  EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([&] { call(mean, inputs, Protocol::decode); }),
                  "protocol decode has no call on whole sequences");
}

TEST(Call, OutputNeedsNoGradientAndInputsGetNone) {
  const auto inputs = inputs_of(problem_of({6, 6, 4, 4}, at::kFloat, Masking::none), Protocol::forward_backward);
  const auto results = call(*make_method("softmax"), inputs, Protocol::forward_backward);
  EXPECT_FALSE(results.output.requires_grad());
  for (const auto* input : {&inputs.q, &inputs.k, &inputs.v}) EXPECT_FALSE(input->grad().defined());
}

}  // namespace
}  // namespace attn
