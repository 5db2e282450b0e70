// Tests of the choice of blocks by their mean keys: means, ties, masks, and products that float32 cannot tell apart.
#include "attn/sparse/pooled_choice.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace attn {
namespace {

using at::Tensor;

Tensor column(std::vector<double> values) {
  const auto count = int64_t(values.size());
  return at::tensor(values, at::kDouble).view({1, 1, count, 1});
}
std::vector<int64_t> numbers(const Tensor& x) {
  const auto flat = x.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(PooledBlocks, AreMeansOfTheValidPositions) {
  const auto x = column({1, 3, 10, 20, 7});
  EXPECT_TRUE(at::equal(pooled_blocks(x, 2, std::nullopt, at::kDouble), column({2, 15, 7})));
  EXPECT_TRUE(at::equal(pooled_blocks(x, 2, at::tensor({3}, at::kLong), at::kDouble), column({2, 10, 0})));
  EXPECT_TRUE(at::equal(pooled_blocks(x, 8, std::nullopt, at::kDouble), column({41.0 / 5})));
}

TEST(ChooseBlocks, TakesTheOwnBlockAndThoseWithTheLargestProducts) {
  // The mean keys of blocks of 2 are 1, 5, 3 and 5.
  const auto k = column({1, 1, 5, 5, 3, 3, 4, 6}), q = at::ones_like(k);
  const auto chosen = choose_blocks(q, k, /*causal=*/false, std::nullopt, 2, 2);
  EXPECT_EQ(chosen.sizes(), (at::IntArrayRef{1, 1, 8, 3}));
  // Equal products choose the lower block.
  EXPECT_EQ(numbers(chosen[0][0][0]), (std::vector<int64_t>{0, 1, 3}));
  EXPECT_EQ(numbers(chosen[0][0][4]), (std::vector<int64_t>{2, 1, 3}));
  EXPECT_EQ(numbers(choose_blocks(q, k, false, std::nullopt, 2, 1)[0][0][0]), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(numbers(choose_blocks(-q, k, false, std::nullopt, 2, 2)[0][0][2]), (std::vector<int64_t>{1, 0, 2}));
  // With the causal mask, blocks before the own one alone; −1 where there are fewer than are wanted.
  const auto causal = choose_blocks(q, k, true, std::nullopt, 2, 2);
  EXPECT_EQ(numbers(causal[0][0][1]), (std::vector<int64_t>{0, -1, -1}));
  EXPECT_EQ(numbers(causal[0][0][3]), (std::vector<int64_t>{1, 0, -1}));
  EXPECT_EQ(numbers(causal[0][0][7]), (std::vector<int64_t>{3, 1, 2}));
  // With 3 valid keys the second block is their last one.
  const auto shorter = choose_blocks(q, k, false, at::tensor({3}, at::kLong), 2, 2);
  EXPECT_EQ(numbers(shorter[0][0][0]), (std::vector<int64_t>{0, 1, -1}));
  EXPECT_EQ(numbers(shorter[0][0][7]), (std::vector<int64_t>{-1, 1, 0}));
  // Without keys there are no blocks.
  EXPECT_EQ(numbers(choose_blocks(q.narrow(2, 0, 2), k.narrow(2, 0, 0), false, std::nullopt, 2, 1)),
            (std::vector<int64_t>{-1, -1, -1, -1}));
  // The last query stands at the last key: two queries of eight positions are the last two.
  EXPECT_EQ(numbers(choose_blocks(q.narrow(2, 0, 2), k, true, std::nullopt, 2, 1)[0][0]), (std::vector<int64_t>{3, 1, 3, 1}));
}

// In float32, 1 + 1e-9 is 1, and the lower block would be chosen.
TEST(ChooseBlocks, ProductsThatAreTooCloseAreComputedInFloat64) {
  const auto k = column({1, 1 + 1e-9, 0.5, 0}), q = at::ones_like(k);
  EXPECT_EQ(numbers(choose_blocks(q, k, false, std::nullopt, 1, 1)[0][0][3]), (std::vector<int64_t>{3, 1}));
}

// Heads that share keys choose each for itself.
TEST(ChooseBlocks, EachHeadOfQueriesChooses) {
  const auto k = at::cat({column({1, 2, 3, 0}), column({3, 1, 2, 0})}, 1);
  const auto q = at::tensor({1.0, -1.0, 1.0, -1.0}, at::kDouble).view({1, 4, 1, 1}).expand({1, 4, 4, 1});
  const auto chosen = choose_blocks(q, k, false, std::nullopt, 1, 1).select(3, 1).select(2, 3);
  EXPECT_EQ(numbers(chosen), (std::vector<int64_t>{2, 0, 0, 1}));
}

}  // namespace
}  // namespace attn
