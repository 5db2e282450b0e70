// Tests of the checks of what a call does besides computing its result.
#include "harness/worker/checks/call_checks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/gated.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

TEST(InputState, NamesTheInputThatHasChanged) {
  const Gated method;
  const at::NoGradGuard no_gradients;
  // The sums of large inputs are compared, and copies of small ones.
  for (const int64_t length : {int64_t{16}, int64_t{100000}}) {
    const auto problem = problem_of({length, length, 8, 8}, at::kFloat, Masking::causal);
    const auto inputs = inputs_of(method, problem, Protocol::forward_backward);
    for (const auto& [name, tensor] : {std::pair<std::string, at::Tensor>{"q", inputs.q},
                                       {"v", inputs.v},
                                       {"g", inputs.g},
                                       {"gradient of the output", inputs.grad_output}}) {
      const attnbench::InputState state(inputs);
      EXPECT_EQ(state.changed(inputs), "");
      tensor.view(-1)[7].sub_(1);
      EXPECT_EQ(state.changed(inputs), name);
    }
  }
}

}  // namespace
}  // namespace attn
