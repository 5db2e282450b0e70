// Tests of the selection of rows to compare, and of the gradient that is zero outside the selection.
#include "harness/worker/checks/selection.h"

#include <gtest/gtest.h>

#include "tests/support/causal_mean.h"
#include "tests/support/errors_of.h"
#include "tests/support/head_slopes.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

TEST(Selection, RandomIsReproducibleAndContainsTheFirstAndTheLastRow) {
  const auto problem = problem_of({1000, 1000, 4, 4}, at::kFloat, Masking::none, 5, 6);
  const auto selection = Selection::random(problem, 64, 7);
  EXPECT_TRUE(at::equal(selection.batch, at::arange(5)));
  EXPECT_TRUE(at::equal(selection.groups, at::arange(6)));
  EXPECT_EQ(selection.rows.numel(), 16);
  EXPECT_EQ(selection.rows[0].item<int64_t>(), 0);
  EXPECT_EQ(selection.rows[-1].item<int64_t>(), 999);
  const auto distinct = std::get<0>(at::_unique(selection.rows));
  EXPECT_EQ(distinct.numel(), selection.rows.numel());
  EXPECT_TRUE(at::equal(Selection::random(problem, 64, 7).rows, selection.rows));
  EXPECT_FALSE(at::equal(Selection::random(problem, 64, 8).rows, selection.rows));
}

TEST(Selection, RandomTakesAllHeadsBeforeSeveralBatchEntriesAndSomeHeadsWhereNotAllFit) {
  const auto problem = problem_of({1000, 1000, 64, 64}, at::kFloat, Masking::none, 4, 6);
  const auto sizes = [&](double budget_bytes, bool with_gradients = false, bool all_rows = false) {
    const auto some = Selection::random(problem, 64, 7, {budget_bytes, with_gradients, all_rows});
    EXPECT_GE(some.rows.numel(), 16);
    return std::pair(some.batch.numel(), some.groups.numel());
  };
  const double head = 4 * 8 * (1000 * 192 + 16 * 1000);  // bytes
  EXPECT_EQ(sizes(25 * head), std::pair(int64_t{4}, int64_t{6}));
  EXPECT_EQ(sizes(13 * head), std::pair(int64_t{2}, int64_t{6}));
  EXPECT_EQ(sizes(11 * head), std::pair(int64_t{1}, int64_t{6}));
  EXPECT_EQ(sizes(3.5 * head), std::pair(int64_t{1}, int64_t{3}));
  EXPECT_EQ(sizes(3.5 * head, true), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(sizes(20 * head, false, true), std::pair(int64_t{1}, int64_t{3}));
  EXPECT_EQ(sizes(-1), std::pair(int64_t{1}, int64_t{1}));
  // However much memory there is, the keys that the reference reads are bounded.
  const auto large = Selection::random(problem_of({1 << 18, 1 << 18, 64, 64}, at::kFloat, Masking::none, 4, 6), 64, 7);
  EXPECT_EQ(large.batch.numel(), 1);
  EXPECT_EQ(large.groups.numel(), 2);
  EXPECT_EQ(large.rows.numel(), 32);
}

TEST(Selection, AReferenceOfSomeHeadsGetsTheirIndices) {
  const auto problem = problem_of({50, 50, 8, 8}, at::kFloat, Masking::causal, 5, 8);
  HeadSlopes method;
  for (const auto protocol : {Protocol::forward, Protocol::forward_backward})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const auto some = Selection::random(problem, 64, seed, {.budget_bytes = 200e3});
      ASSERT_LT(some.groups.numel(), 8);
      const auto inputs = restrict_gradient(inputs_of(problem, protocol), some);
      EXPECT_TRUE(compare(method, inputs, call(method, inputs, protocol), some).within(1e-5)) << seed;
    }
}

TEST(Selection, TakesWholeGroupsOfHeadsThatShareKeys) {
  auto problem = problem_of({50, 50, 8, 8}, at::kFloat, Masking::none, 2, 8);
  problem.kv_heads = problem.value_heads = 4;
  const auto some = Selection::random(problem, 64, 1, {.budget_bytes = 150e3});
  ASSERT_LT(some.groups.numel(), 4);
  EXPECT_EQ(some.count(), some.batch.numel() * some.groups.numel() * 2 * some.rows.numel());
  const auto keys = some.heads_of(4), queries = some.heads_of(8);
  EXPECT_TRUE(at::equal(keys, some.groups));
  EXPECT_TRUE(at::equal(queries.floor_divide(2), keys.repeat_interleave(2)));
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  EXPECT_EQ(some.select_from(inputs.q).size(1), 2 * some.select_from(inputs.k).size(1));
  const auto part = attnbench::excerpts(inputs, call(*make_method("softmax"), inputs, Protocol::forward_backward), some)[0];
  EXPECT_TRUE(at::equal(part.inputs.head_indices(), queries));
  EXPECT_EQ(part.inputs.heads_of_call(), 8);
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
  const Selection some{at::tensor({1}, at::kLong), at::tensor({0}, at::kLong), at::tensor({3, 7}, at::kLong), 2, 2};
  const auto gradient = restrict_gradient(inputs, some).grad_output;
  auto expected = at::zeros_like(gradient);
  for (const int64_t row : {3, 7}) expected[1][0][row].copy_(inputs.grad_output[1][0][row]);
  EXPECT_TRUE(at::equal(gradient, expected));
  EXPECT_FALSE(restrict_gradient(inputs_of(problem, Protocol::forward), some).grad_output.defined());
}

}  // namespace
}  // namespace attn
