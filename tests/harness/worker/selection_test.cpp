// Tests of the selection of rows to compare, and of the gradient that is zero outside the selection.
#include "harness/worker/selection.h"

#include <gtest/gtest.h>

#include "tests/support/causal_mean.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

TEST(Selection, RandomIsReproducibleAndContainsTheFirstAndTheLastRow) {
  const auto problem = problem_of({1000, 1000, 4, 4}, at::kFloat, Masking::none, 5, 6);
  const auto selection = Selection::random(problem, 64, 7);
  EXPECT_EQ(selection.batch.numel(), 2);
  EXPECT_EQ(selection.heads.numel(), 2);
  EXPECT_EQ(selection.count(), 64);
  EXPECT_EQ(selection.rows[0].item<int64_t>(), 0);
  EXPECT_EQ(selection.rows[-1].item<int64_t>(), 999);
  const auto distinct = std::get<0>(at::_unique(selection.rows));
  EXPECT_EQ(distinct.numel(), selection.rows.numel());
  EXPECT_TRUE(at::equal(Selection::random(problem, 64, 7).rows, selection.rows));
  EXPECT_FALSE(at::equal(Selection::random(problem, 64, 8).rows, selection.rows));
}

TEST(Selection, RandomTakesEveryRowWhenThereAreFew) {
  const auto one = Selection::random(problem_of({1, 1, 4, 4}, at::kFloat, Masking::none, 1, 1), 64, 7);
  EXPECT_EQ(one.count(), 1);
  EXPECT_EQ(one.rows[0].item<int64_t>(), 0);
  const auto few = Selection::random(problem_of({5, 5, 4, 4}, at::kFloat, Masking::none, 1, 1), 64, 7);
  EXPECT_TRUE(at::equal(few.rows, at::arange(5)));
  EXPECT_EQ(Selection::random(problem_of({5, 5, 4, 4}, at::kFloat, Masking::none, 0, 1), 64, 7).count(), 0);
}

TEST(RestrictGradient, IsZeroOutsideTheSelection) {
  const auto problem = problem_of({12, 12, 4, 6}, at::kFloat, Masking::none);
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const Selection some{at::tensor({1}, at::kLong), at::tensor({0}, at::kLong), at::tensor({3, 7}, at::kLong)};
  const auto gradient = restrict_gradient(inputs, some).grad_output;
  auto expected = at::zeros_like(gradient);
  for (const int64_t row : {3, 7}) expected[1][0][row].copy_(inputs.grad_output[1][0][row]);
  EXPECT_TRUE(at::equal(gradient, expected));
  EXPECT_FALSE(restrict_gradient(inputs_of(problem, Protocol::forward), some).grad_output.defined());
}

}  // namespace
}  // namespace attn
