// Tests of the generation of images.
#include "experiments/decoding/generate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/experiments/generator.h"
#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;
using attnbench::seeded;

SequenceModel small_image_model(const std::string& method) {
  at::manual_seed(3);
  SequenceModel model(SequenceModelOptions{
      .tokens = 256, .outputs = 6, .encoder = {.method = method, .layers = 1, .width = 16, .heads = 2, .head_dim = 8}});
  model->eval();
  return model;
}

TEST(Generate, GivesImagesOfBytesThatFollowTheGenerator) {
  for (const auto* method : {"linear", "stateful-softmax", "stateful-sdpa", "softmax"}) {
    const auto model = small_image_model(method);
    const auto decoder = make_decoder(model, {.batch = 3, .max_tokens = 20});
    const auto images = generate(*decoder, 15, {.generator = seeded(1)});
    ASSERT_EQ(images.sizes(), (at::IntArrayRef{3, 16}));
    EXPECT_EQ(images.scalar_type(), at::kByte);
    EXPECT_TRUE(images.select(1, 0).eq(0).all().item<bool>()) << "byte 0 is 0 by default";
    EXPECT_FALSE(at::equal(images[0], images[1])) << "every image has random numbers of its own";
    EXPECT_TRUE(at::equal(generate(*decoder, 15, {.generator = seeded(1)}), images)) << "new sequences are begun";
    EXPECT_FALSE(at::equal(generate(*decoder, 15, {.generator = seeded(2)}), images));
  }
}

TEST(Generate, DrawsEachByteFromTheOutputAtTheByteBefore) {
  const at::NoGradGuard no_grad;
  for (const auto* method : {"linear", "stateful-softmax", "softmax"}) {
    auto model = small_image_model(method);
    // Narrow distributions: the byte is the mean, rounded. Both components have the same mean.
    model->output->weight[3].copy_(model->output->weight[2]);
    model->output->bias[3].copy_(model->output->bias[2]);
    for (const int64_t log_scale : {4, 5}) model->output->weight[log_scale].zero_(), model->output->bias[log_scale].fill_(-50);
    const auto decoder = make_decoder(model, {.batch = 3, .max_tokens = 20});
    const auto counts = at::ones({256}, at::kLong);
    const auto images = generate(*decoder, 20, {.generator = seeded(1), .first_byte_counts = counts});
    const auto means = model(images.narrow(1, 0, 20).to(at::kLong)).select(2, 2);
    const auto expected = ((means + 1) * 127.5).round().clamp(0, 255);
    EXPECT_LE((images.narrow(1, 1, 20) - expected).abs().max().item<double>(), 2) << method;
    EXPECT_GT(images.to(at::kFloat).std().item<double>(), 1) << "the bytes differ, so that the test can fail";
  }
}

TEST(Generate, CompletesGivenBytes) {
  for (const auto* method : {"linear", "stateful-softmax", "softmax"}) {
    const auto decoder = make_decoder(small_image_model(method), {.batch = 3, .max_tokens = 15});
    const auto given = at::randint(256, {3, 8}, at::kByte);
    const auto images = generate(*decoder, 15, {.generator = seeded(1), .given = given});
    EXPECT_TRUE(at::equal(images.narrow(1, 0, 8), given)) << method;
    // The same bytes, one after the other, with the random numbers of the completion.
    decoder->reset();
    LogisticMixtureSampler sample(LogisticSampler::as_likelihood, seeded(1));
    for (int64_t t = 0; t < 15; ++t) {
      const auto& parameters = decoder->step(images.select(1, t).to(at::kLong));
      if (t < 7) continue;
      uint8_t bytes[3];
      sample(parameters, bytes);
      for (int64_t b = 0; b < 3; ++b) EXPECT_EQ(images[b][t + 1].item<int64_t>(), bytes[b]) << method << " " << t;
    }
    EXPECT_TRUE(at::equal(generate(*decoder, 7, {.given = given}), given)) << "nothing is left to generate";
    const auto one = generate(*decoder, 15, {.generator = seeded(1), .given = at::zeros({3, 1}, at::kByte)});
    EXPECT_TRUE(at::equal(one, generate(*decoder, 15, {.generator = seeded(1)}))) << "a given byte 0 is the default";
  }
}

TEST(Generate, DrawsTheFirstByteFromItsCounts) {
  const auto images = at::zeros({3, 2, 2}, at::kByte);
  images.select(1, 0).select(1, 0).copy_(at::tensor({7, 9, 7}, at::kByte));
  const auto counts = first_byte_counts(images);
  EXPECT_EQ(counts.sizes(), (at::IntArrayRef{256}));
  EXPECT_EQ(counts[7].item<int64_t>(), 2);
  EXPECT_EQ(counts[9].item<int64_t>(), 1);
  EXPECT_EQ(counts.sum().item<int64_t>(), 3);
  const auto decoder = make_decoder(small_image_model("linear"), {.batch = 3000, .max_tokens = 1});
  const auto first = generate(*decoder, 1, {.generator = seeded(1), .first_byte_counts = counts}).select(1, 0);
  EXPECT_TRUE(first.eq(7).logical_or(first.eq(9)).all().item<bool>());
  EXPECT_NEAR(first.eq(7).sum().item<double>(), 2000, 150);
}

TEST(Generate, RefusesMistakes) {
  const auto decoder = make_decoder(small_image_model("linear"), {.batch = 3, .max_tokens = 15});
  const auto refusal = [&](int64_t length, const GenerateOptions& options) {
    return message_of<c10::ValueError>([&] { generate(*decoder, length, options); });
  };
  EXPECT_CONTAINS(refusal(0, {}), "length = 0, expected 1 to 15");
  EXPECT_CONTAINS(refusal(16, {}), "length = 16, expected 1 to 15");
  EXPECT_CONTAINS(refusal(4, {.given = at::zeros({3, 6}, at::kByte)}), "Byte [3, 6] on cpu, expected uint8 [3, 1 to 5]");
  EXPECT_CONTAINS(refusal(4, {.given = at::zeros({2, 3}, at::kByte)}), "Byte [2, 3]");
  EXPECT_CONTAINS(refusal(4, {.given = at::zeros({3, 0}, at::kByte)}), "Byte [3, 0]");
  EXPECT_CONTAINS(refusal(4, {.given = at::zeros({3, 3}, at::kLong)}), "Long [3, 3]");
  EXPECT_CONTAINS(refusal(4, {.first_byte_counts = at::ones({255}, at::kLong)}), "Long [255]");
  EXPECT_CONTAINS(refusal(4, {.first_byte_counts = at::zeros({256}, at::kLong)}), "that are not all 0");
  EXPECT_CONTAINS(refusal(4, {.first_byte_counts = at::arange(-1, 255, at::kLong)}), "counts of at least 0");
  const auto other = make_decoder(
      [] {
        SequenceModel model(SequenceModelOptions{
            .tokens = 11, .outputs = 11, .encoder = {.method = "linear", .layers = 1, .width = 8, .heads = 1, .head_dim = 8}});
        model->eval();
        return model;
      }(),
      {.batch = 1, .max_tokens = 4});
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { generate(*other, 3); }), "the model has 11 tokens and 11 outputs");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { first_byte_counts(at::zeros({0, 3}, at::kByte)); }), "uint8 [images, ...]");
}

}  // namespace
}  // namespace experiments
