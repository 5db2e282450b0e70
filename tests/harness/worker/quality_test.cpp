// Test of the approximation error and the diagnostics of a method that approximates another attention.
#include "harness/worker/quality.h"

#include <gtest/gtest.h>
#include <cmath>

#include "tests/support/causal_mean.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::assess;

TEST(Assess, ApproximationErrorIsTakenOverTheSelectedRows) {
  CausalMean half(CausalMean::Flaw::approximates), exact(CausalMean::Flaw::none);
  const auto problem = problem_of({12, 12, 4, 4}, at::kFloat, Masking::causal);
  const auto inputs = inputs_of(problem, Protocol::forward);
  auto results = call(half, inputs, Protocol::forward);
  results.output = results.output.clone();
  results.output[0][0][3].zero_();
  const auto error = [&](std::vector<int64_t> rows) {
    const Selection some{at::tensor({0}, at::kLong), at::tensor({0}, at::kLong), at::tensor(rows, at::kLong)};
    const auto quality = assess(half, inputs, results, some);
    EXPECT_EQ(quality.diagnostics.at(0).second, double(rows.back()));
    return quality.approximation_error.value();
  };
  EXPECT_NEAR(error({0, 5}), 0.5, 1e-6);
  EXPECT_NEAR(error({3}), 1, 1e-6);
  const auto twice = 2 * call(exact, inputs, Protocol::forward).output[0][0].to(at::kDouble);
  const auto three = twice[3].square().sum().item<double>(), five = twice[5].square().sum().item<double>();
  EXPECT_NEAR(error({3, 5}), std::sqrt((three + five / 4) / (three + five)), 1e-6);
  EXPECT_FALSE(assess(exact, inputs, results, Selection::everything(problem)).approximation_error);
}

}  // namespace
}  // namespace attn
