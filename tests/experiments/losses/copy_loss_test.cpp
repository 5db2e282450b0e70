// Tests of the copy task's loss. tests/python/experiments/test_experiments.py compares it with PyTorch's cross entropy.
#include "experiments/losses/copy_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;

at::Tensor mask_of(std::vector<int64_t> values, at::IntArrayRef shape) {
  return at::tensor(values, at::kLong).view(shape).to(at::kBool);
}

TEST(MaskedCrossEntropy, IsTheMeanOverTheMask) {
  auto logits = at::zeros({1, 3, 4}, at::kDouble);
  logits[0][1][2] = 5;
  logits[0][2][0] = 100;
  const auto targets = at::tensor({0, 2, 3}, at::kLong).unsqueeze(0);
  // The third position is wrong by 100 nats and is left out.
  const double second = std::log(std::exp(5.0) + 3) - 5;
  EXPECT_NEAR(masked_cross_entropy(logits, targets, mask_of({1, 1, 0}, {1, 3})).item<double>(), (std::log(4.0) + second) / 2,
              1e-12);
}

TEST(MaskedCrossEntropy, HasNoGradientWhereTheMaskIsFalse) {
  const auto logits = at::randn({2, 3, 4}).requires_grad_();
  const auto mask = mask_of({1, 0, 1, 0, 0, 1}, {2, 3});
  masked_cross_entropy(logits, at::zeros({2, 3}, at::kLong), mask).backward();
  EXPECT_TRUE(at::equal(logits.grad().ne(0).any(-1), mask));
}

TEST(MaskedCrossEntropy, IsZeroForAnEmptyMask) {
  const auto logits = at::randn({1, 3, 4}).requires_grad_();
  const auto loss = masked_cross_entropy(logits, at::zeros({1, 3}, at::kLong), mask_of({0, 0, 0}, {1, 3}));
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_TRUE(at::equal(logits.grad(), at::zeros({1, 3, 4})));
  EXPECT_EQ(masked_accuracy(logits, at::zeros({1, 3}, at::kLong), mask_of({0, 0, 0}, {1, 3})).item<double>(), 0);
}

TEST(MaskedAccuracy, CountsWithinTheMask) {
  const auto logits = at::eye(4).unsqueeze(0);  // position i predicts class i
  const auto targets = at::tensor({0, 1, 0, 0}, at::kLong).unsqueeze(0);
  EXPECT_EQ(masked_accuracy(logits, targets, mask_of({1, 1, 1, 1}, {1, 4})).item<double>(), 0.5);
  EXPECT_EQ(masked_accuracy(logits, targets, mask_of({1, 1, 1, 0}, {1, 4})).item<double>(), 2.0 / 3);
  EXPECT_EQ(masked_accuracy(logits, targets, mask_of({0, 0, 1, 1}, {1, 4})).item<double>(), 0);
}

TEST(CopyLoss, RefusesBadArguments) {
  const auto logits = at::zeros({2, 3, 4});
  const auto targets = at::zeros({2, 3}, at::kLong), mask = at::zeros({2, 3}, at::kBool);
  const auto message = [](const at::Tensor& x, const at::Tensor& y, const at::Tensor& where) {
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { masked_cross_entropy(x, y, where); }), "masked_cross_entropy: ");
    return message_of<c10::ValueError>([&] { masked_accuracy(x, y, where); });
  };
  EXPECT_CONTAINS(message(at::zeros({2, 3}), targets, mask), "logits are Float [2, 3], expected");
  EXPECT_CONTAINS(message(logits.to(at::kLong), targets, mask), "logits are Long");
  EXPECT_CONTAINS(message(logits, targets.to(at::kInt), mask), "targets is Int [2, 3], expected Long [2, 3]");
  EXPECT_CONTAINS(message(logits, targets.t(), mask), "targets is Long [3, 2], expected Long [2, 3]");
  EXPECT_CONTAINS(message(logits, targets, mask.to(at::kFloat)), "mask is Float [2, 3], expected Bool [2, 3]");
}

}  // namespace
}  // namespace experiments
