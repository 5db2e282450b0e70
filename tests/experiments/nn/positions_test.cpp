// Tests of position encodings and of the input layers.
#include "experiments/nn/positions.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;

TEST(SinusoidalPositions, AreSinesAndCosinesInPairs) {
  const auto encodings = sinusoidal_positions(50, 6, at::kDouble);
  ASSERT_EQ(encodings.sizes(), (at::IntArrayRef{50, 6}));
  for (int64_t p = 0; p < 50; ++p) {
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = double(p) / std::pow(10000.0, 2 * double(i) / 6);
      EXPECT_NEAR(encodings[p][2 * i].item<double>(), std::sin(angle), 1e-12);
      EXPECT_NEAR(encodings[p][2 * i + 1].item<double>(), std::cos(angle), 1e-12);
    }
  }
}

TEST(SinusoidalPositions, AreRoundedFromFloat64) {
  const auto encodings = sinusoidal_positions(3072, 128, at::kFloat);
  EXPECT_EQ(encodings.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(encodings, sinusoidal_positions(3072, 128, at::kDouble).to(at::kFloat)));
}

TEST(SinusoidalPositions, AreConcatenatedAtEveryLengthAndDtype) {
  SinusoidalPositions positions(4);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto encodings = sinusoidal_positions(40, 4, dtype);
    for (const int64_t length : {5, 12, 3, 13, 0}) {
      const auto features = at::randn({2, length, 3}, dtype);
      const auto result = positions.concatenate_to(features, 7);
      EXPECT_TRUE(at::equal(result.narrow(2, 0, 3), features));
      for (int64_t b = 0; b < 2; ++b) EXPECT_TRUE(at::equal(result[b].narrow(1, 3, 4), encodings.narrow(0, 7, length)));
    }
  }
}

TEST(SinusoidalPositions, RefuseBadSizes) {
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { sinusoidal_positions(-1, 4, at::kFloat); }), "length = -1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { sinusoidal_positions(1, 3, at::kFloat); }), "width = 3");
}

TEST(TokenInput, IsAnEmbeddingBesideThePosition) {
  TokenInput input(11, 8);
  const auto tokens = at::tensor({3, 0, 10, 3, 3, 1}, at::kLong).view({2, 3});
  const auto x = input(tokens);
  ASSERT_EQ(x.sizes(), (at::IntArrayRef{2, 3, 8}));
  EXPECT_TRUE(at::equal(x.narrow(2, 0, 4), input->embedding->weight.index({tokens})));
  EXPECT_TRUE(at::equal(x[1].narrow(1, 4, 4), sinusoidal_positions(3, 4, at::kFloat)));
  EXPECT_TRUE(at::equal(input->forward(tokens.narrow(1, 2, 1), 2), x.narrow(1, 2, 1)));
}

TEST(TokenInput, RefusesBadArguments) {
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { TokenInput(0, 8); }), "tokens = 0");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { TokenInput(11, 6); }), "width = 6");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { TokenInput(11, 0); }), "width = 0");
  TokenInput input(11, 8);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { input(at::zeros({3}, at::kLong)); }), "[3], expected int64 [batch, length]");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { input(at::zeros({1, 3}, at::kInt)); }), "tokens are Int");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { input(at::full({1, 3}, 11, at::kLong)); }), "tokens from 11 to 11");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { input(at::full({1, 3}, -1, at::kLong)); }), "tokens from -1 to -1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { input->forward(at::zeros({1, 3}, at::kLong), -2); }), "begin = -2");
}

TEST(FrameInput, IsALinearMapBesideThePosition) {
  FrameInput input(5, 8);
  const auto frames = at::randn({2, 3, 5});
  const auto x = input(frames);
  ASSERT_EQ(x.sizes(), (at::IntArrayRef{2, 3, 8}));
  const auto expected = at::matmul(frames, input->projection->weight.t()) + input->projection->bias;
  EXPECT_TRUE(at::allclose(x.narrow(2, 0, 4), expected, 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(x[1].narrow(1, 4, 4), sinusoidal_positions(3, 4, at::kFloat)));
}

TEST(FrameInput, RefusesBadArguments) {
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { FrameInput(0, 8); }), "features = 0");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { FrameInput(5, 10); }), "width = 10");
  FrameInput input(5, 8);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { input(at::zeros({2, 3, 4})); }), "[2, 3, 4], expected [batch, length, 5]");
}

}  // namespace
}  // namespace experiments
