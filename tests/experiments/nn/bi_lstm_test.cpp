// Tests of the Bi-LSTM. tests/python/experiments/test_experiments.py compares its numbers with PyTorch's.
#include "experiments/nn/bi_lstm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "experiments/nn/transformer.h"
#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;

BiLstmOptions small_lstm() { return {.features = 4, .phones = 6, .layers = 2, .hidden = 5}; }

TEST(BiLstm, HasThePapersSizes) {
  BiLstm model(BiLstmOptions{.phones = 42});
  // A direction of a layer with n inputs has 4·320·(n + 320 + 2) numbers; layers have 40, 640 and 640 inputs.
  const int64_t lstm = 2 * 4 * 320 * ((40 + 322) + 2 * (640 + 322));
  EXPECT_EQ(parameter_count(*model), lstm + 43 * 641);
}

TEST(BiLstm, GivesLogProbabilitiesThatPaddingDoesNotChange) {
  BiLstm model(small_lstm());
  const auto features = at::randn({3, 10, 4});
  const auto lengths = at::tensor({4, 10, 1}, at::kLong);
  const auto result = model(features, lengths);
  ASSERT_EQ(result.sizes(), (at::IntArrayRef{3, 10, 7}));
  EXPECT_TRUE(at::allclose(result.exp().sum(-1), at::ones({3, 10}), 1e-5, 1e-5));
  for (int64_t i = 0; i < 3; ++i) {
    const auto length = lengths[i].item<int64_t>();
    const auto alone = model(features.narrow(0, i, 1).narrow(1, 0, length), lengths.narrow(0, i, 1));
    EXPECT_TRUE(at::allclose(result[i].narrow(0, 0, length), alone[0], 1e-5, 1e-6));
  }
}

TEST(BiLstm, KeepsTheLengthWhenAllSequencesAreShorter) {
  BiLstm model(small_lstm());
  EXPECT_EQ(model(at::randn({2, 10, 4}), at::tensor({3, 5}, at::kLong)).sizes(), (at::IntArrayRef{2, 10, 7}));
}

TEST(BiLstm, ReadsBothDirections) {
  BiLstm model(small_lstm());
  const auto features = at::randn({1, 6, 4});
  const auto lengths = at::tensor({6}, at::kLong);
  const auto before = model(features, lengths);
  features[0][3].add_(1);
  const auto after = model(features, lengths);
  for (int64_t t = 0; t < 6; ++t) EXPECT_FALSE(at::allclose(after[0][t], before[0][t], 1e-6, 1e-8)) << t;
}

TEST(BiLstm, RefusesBadArguments) {
  const auto message = [](auto change) {
    auto options = small_lstm();
    change(options);
    return message_of<c10::ValueError>([&] { BiLstm{options}; });
  };
  EXPECT_CONTAINS(message([](auto& o) { o.features = 0; }), "features = 0");
  EXPECT_CONTAINS(message([](auto& o) { o.phones = 0; }), "phones = 0");
  EXPECT_CONTAINS(message([](auto& o) { o.layers = 0; }), "layers = 0");
  EXPECT_CONTAINS(message([](auto& o) { o.hidden = 0; }), "hidden = 0");
  EXPECT_CONTAINS(message([](auto& o) { o.dropout = 1; }), "dropout = 1");
  BiLstm model(small_lstm());
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] {
                    model(at::zeros({2, 3, 5}), at::tensor({1, 1}, at::kLong));
                  }),
                  "[2, 3, 5], expected [batch, length, 4]");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] {
                    model(at::zeros({2, 3, 4}), at::tensor({0, 1}, at::kLong));
                  }),
                  "BiLstm: frame_lengths are from 0 to 1");
}

}  // namespace
}  // namespace experiments
