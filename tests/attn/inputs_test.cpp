// Tests of a method's inputs: tokens() gives views of a range of tokens, and problem_of() reads a problem from tensors and mask.
#include "attn/inputs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace attn {
namespace {

// Causal inputs [1,2,5,·] whose entries are all different.
Inputs numbered() {
  const auto numbers = [](int64_t dim, double from) { return at::arange(from, from + 2 * 5 * double(dim)).view({1, 2, 5, dim}); };
  return {numbers(3, 0), numbers(3, 100), numbers(4, 200), {.causal = true}};
}

TEST(InputsOfAMethod, TokensAreViewsOfEveryTensor) {
  const auto inputs = numbered();
  const auto part = inputs.tokens(1, 3);
  for (const auto member : kInputTensors) {
    EXPECT_TRUE(at::equal(part.*member, (inputs.*member).narrow(2, 1, 3)));
    EXPECT_TRUE((part.*member).is_alias_of(inputs.*member));
  }
  EXPECT_TRUE(part.mask.causal);
  auto without_k = inputs;
  without_k.k.reset();
  EXPECT_FALSE(without_k.tokens(1, 3).k.defined());
}

TEST(InputsOfAMethod, GiveTheProblemOfTheirSizes) {
  auto inputs = numbered();
  auto problem = problem_of(inputs);
  EXPECT_EQ(problem.batch, 1);
  EXPECT_EQ(problem.heads, 2);
  EXPECT_EQ(problem.query_len, 5);
  EXPECT_EQ(problem.key_len, 5);
  EXPECT_EQ(problem.head_dim, 3);
  EXPECT_EQ(problem.value_dim, 4);
  EXPECT_EQ(problem.dtype, at::kFloat);
  EXPECT_TRUE(problem.causal);
  EXPECT_TRUE(problem.key_lengths.is_full());
  inputs.mask = {.causal = false, .key_lengths = at::tensor({2}, at::kLong)};
  inputs.q = inputs.q.slice(2, 0, 2);
  problem = problem_of(inputs);
  EXPECT_EQ(problem.query_len, 2);
  EXPECT_FALSE(problem.causal);
  EXPECT_FALSE(problem.key_lengths.is_full());
}

}  // namespace
}  // namespace attn
