// Tests of the transformer encoder and its models. tests/python/experiments/test_experiments.py compares their numbers with
// PyTorch's.
#include "experiments/nn/transformer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <set>

#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;

TransformerOptions small_transformer(const std::string& method) {
  return {.method = method, .layers = 2, .width = 8, .heads = 2, .head_dim = 4, .seed = 5};
}

SequenceModelOptions small_sequence_model(const std::string& method) {
  return {.tokens = 5, .outputs = 3, .encoder = small_transformer(method)};
}

SpeechModelOptions small_speech_model(const std::string& method) {
  return {.features = 4, .phones = 6, .encoder = small_transformer(method)};
}

TEST(TransformerEncoder, KeepsTheShapeAndNormalisesTheOutput) {
  TransformerEncoder encoder(small_transformer("linear"));
  const at::NoGradGuard no_grad;
  encoder->norm->weight.fill_(3);
  encoder->norm->bias.fill_(5);
  const auto y = encoder(at::randn({3, 7, 8}), attn::Mask{});
  ASSERT_EQ(y.sizes(), (at::IntArrayRef{3, 7, 8}));
  EXPECT_TRUE(at::allclose(y.mean(-1), at::full({3, 7}, 5.0), 0, 1e-4));
  EXPECT_TRUE(at::allclose((y - 5).square().mean(-1), at::full({3, 7}, 9.0), 1e-3, 1e-3));
}

TEST(TransformerEncoder, FeedForwardIsFourTimesAsWideUnlessGiven) {
  auto options = small_transformer("linear");
  EXPECT_EQ(TransformerEncoder(options)->layers[1]->linear1->weight.sizes(), (at::IntArrayRef{32, 8}));
  options.feed_forward = 5;
  EXPECT_EQ(TransformerEncoder(options)->layers[1]->linear2->weight.sizes(), (at::IntArrayRef{8, 5}));
}

TEST(TransformerEncoder, DropsOutInTrainingOnly) {
  TransformerEncoder encoder(small_transformer("linear"));
  const auto x = at::randn({1, 7, 8});
  EXPECT_FALSE(at::equal(encoder(x, attn::Mask{}), encoder(x, attn::Mask{})));
  encoder->eval();
  EXPECT_TRUE(at::equal(encoder(x, attn::Mask{}), encoder(x, attn::Mask{})));
  auto options = small_transformer("linear");
  options.dropout = 0;
  TransformerEncoder without(options);
  EXPECT_TRUE(at::equal(without(x, attn::Mask{}), without(x, attn::Mask{})));
}

TEST(TransformerEncoder, DropsATenthOfTheFeatures) {
  EXPECT_EQ(TransformerOptions{}.dropout, 0.1);
  auto options = small_transformer("linear");
  options.width = 1000;
  TransformerEncoderLayer layer(options);
  const at::NoGradGuard no_grad;
  // With weights of zero the feed-forward network gives its bias, and with x = 0 the sum before the second LayerNorm is that bias
  // after its dropout, plus the first LayerNorm of attended, which is made constant.
  layer->linear2->weight.zero_();
  layer->linear2->bias.fill_(1);
  layer->norm1->weight.zero_();
  const auto y = layer->after_attention(at::zeros({4, 10, 1000}), at::zeros({4, 10, 1000}));
  EXPECT_NEAR(y.lt(0).to(at::kDouble).mean().item<double>(), 0.1, 0.01);
}

TEST(TransformerEncoder, GivesEachLayerASeedOfItsOwn) {
  TransformerEncoder encoder(small_transformer("lsh:chunk=4"));
  const auto seeds = [&] {
    std::set<std::string> labels;
    for (auto& layer : encoder->layers) labels.insert(layer->attention->method().label());
    return labels;
  };
  const auto before = seeds();
  EXPECT_EQ(before.size(), 2u);
  EXPECT_TRUE(before.contains("lsh:chunk=4,seed=" + std::to_string(layer_seed(5, 0))));
  encoder->set_seed(6);
  EXPECT_EQ(encoder->options().seed, 6u);
  EXPECT_EQ(seeds(), (std::set<std::string>{"lsh:chunk=4,seed=" + std::to_string(layer_seed(6, 0)),
                                            "lsh:chunk=4,seed=" + std::to_string(layer_seed(6, 1))}));
}

TEST(TransformerEncoder, RefusesBadOptions) {
  const auto message = [](auto change) {
    auto options = small_transformer("softmax");
    change(options);
    return message_of<c10::ValueError>([&] { TransformerEncoder{options}; });
  };
  EXPECT_CONTAINS(message([](auto& o) { o.layers = 0; }), "layers = 0");
  EXPECT_CONTAINS(message([](auto& o) { o.width = 0; }), "width = 0");
  EXPECT_CONTAINS(message([](auto& o) { o.feed_forward = -1; }), "feed_forward = -1");
  EXPECT_CONTAINS(message([](auto& o) { o.dropout = 1; }), "dropout = 1");
  EXPECT_CONTAINS(message([](auto& o) { o.dropout = -0.1; }), "dropout = -0.1");
  EXPECT_CONTAINS(message([](auto& o) { o.method = "none"; }), "none");
}

TEST(SequenceModel, HasThePapersParameterCounts) {
  for (const auto* method : {"softmax", "linear", "lsh-4"}) {
    const TransformerOptions encoder{.method = method, .layers = 4, .width = 256, .heads = 8, .head_dim = 32};
    EXPECT_EQ(parameter_count(*SequenceModel(SequenceModelOptions{.tokens = 11, .outputs = 11, .encoder = encoder})), 3163787)
        << method;
    EXPECT_EQ(parameter_count(*SequenceModel(image_model(8, method))), 6359070) << method;
    EXPECT_EQ(parameter_count(*SequenceModel(image_model(16, method))), 12677150) << method;
  }
}

TEST(SequenceModel, PredictsFromTheTokensSoFar) {
  for (const auto* method : {"softmax", "linear"}) {
    SequenceModel model(small_sequence_model(method));
    model->eval();
    const auto tokens = at::randint(5, {2, 9}, at::kLong);
    const auto outputs = model(tokens);
    ASSERT_EQ(outputs.sizes(), (at::IntArrayRef{2, 9, 3}));
    auto changed = tokens.clone();
    changed.select(1, 6).add_(1).remainder_(5);
    const auto other = model(changed);
    EXPECT_TRUE(at::allclose(other.narrow(1, 0, 6), outputs.narrow(1, 0, 6), 1e-5, 1e-6)) << method;
    for (int64_t i = 6; i < 9; ++i) EXPECT_FALSE(at::allclose(other.select(1, i), outputs.select(1, i))) << method << " " << i;
  }
}

TEST(SequenceModel, DependsOnTheOrderOfTokens) {
  SequenceModel model(small_sequence_model("softmax"));
  model->eval();
  const auto tokens = at::tensor({0, 1, 2, 3}, at::kLong).unsqueeze(0),
             swapped = at::tensor({1, 0, 2, 3}, at::kLong).unsqueeze(0);
  EXPECT_FALSE(at::allclose(model(tokens).select(1, 3), model(swapped).select(1, 3)));
}

TEST(SequenceModel, RunsLshAtThePapersChunks) {
  SequenceModel model(small_sequence_model("lsh-4:profile=fast-transformers,buckets=64,chunk=29"));
  const auto outputs = model(at::randint(5, {2, 87}, at::kLong));
  EXPECT_TRUE(outputs.isfinite().all().item<bool>());
  outputs.sum().backward();
}

TEST(SequenceModel, SavesAndLoadsItsParameters) {
  SequenceModel model(small_sequence_model("linear")), other(small_sequence_model("linear"));
  const auto tokens = at::randint(5, {2, 9}, at::kLong);
  model->eval(), other->eval();
  EXPECT_FALSE(at::equal(model(tokens), other(tokens)));
  std::stringstream stream;
  torch::save(model, stream);
  torch::load(other, stream);
  EXPECT_TRUE(at::equal(model(tokens), other(tokens)));
}

TEST(SequenceModel, RefusesBadOptions) {
  auto options = small_sequence_model("linear");
  options.outputs = 0;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { SequenceModel{options}; }), "outputs = 0");
  options = small_sequence_model("linear");
  options.tokens = 0;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { SequenceModel{options}; }), "tokens = 0");
}

TEST(SpeechModel, HasThePapersSizes) {
  const auto options = speech_model(42, "linear");
  EXPECT_EQ(options.encoder.layers, 9);
  EXPECT_EQ(options.encoder.heads * options.encoder.head_dim, 192);
  SpeechModel model(options);
  // A layer has four projections, two feed-forward layers and two LayerNorms.
  const int64_t layer = 4 * 192 * 193 + 193 * 768 + 769 * 192 + 4 * 192;
  EXPECT_EQ(parameter_count(*model), 41 * 96 + 9 * layer + 2 * 192 + 193 * 43);
}

TEST(SpeechModel, GivesLogProbabilitiesThatPaddingDoesNotChange) {
  for (const auto* method : {"softmax", "linear", "lsh-4:chunk=4"}) {
    SpeechModel model(small_speech_model(method));
    model->eval();
    const auto features = at::randn({3, 10, 4});
    const auto lengths = at::tensor({10, 4, 1}, at::kLong);
    const auto result = model(features, lengths);
    ASSERT_EQ(result.sizes(), (at::IntArrayRef{3, 10, 7}));
    EXPECT_TRUE(at::allclose(result.exp().sum(-1), at::ones({3, 10}), 1e-5, 1e-5));
    auto padded = at::full({3, 15, 4}, 50.0);
    for (int64_t i = 0; i < 3; ++i) {
      const auto length = lengths[i].item<int64_t>();
      padded[i].narrow(0, 0, length).copy_(features[i].narrow(0, 0, length));
    }
    const auto other = model(padded.narrow(1, 0, 10), lengths);
    for (int64_t i = 0; i < 3; ++i) {
      const auto length = lengths[i].item<int64_t>();
      EXPECT_TRUE(at::allclose(other[i].narrow(0, 0, length), result[i].narrow(0, 0, length), 1e-4, 1e-5)) << method;
    }
    if (std::string(method).substr(0, 3) == "lsh") continue;  // its hashes depend on the number of positions with padding
    const auto longer = model(padded, lengths);
    for (int64_t i = 0; i < 3; ++i) {
      const auto length = lengths[i].item<int64_t>();
      EXPECT_TRUE(at::allclose(longer[i].narrow(0, 0, length), result[i].narrow(0, 0, length), 1e-4, 1e-5)) << method;
    }
  }
}

TEST(SpeechModel, SeesTheWholeUtterance) {
  SpeechModel model(small_speech_model("linear"));
  model->eval();
  const auto features = at::randn({1, 10, 4});
  const auto lengths = at::tensor({9}, at::kLong);
  const auto result = model(features, lengths);
  features[0][8].add_(1);
  EXPECT_FALSE(at::allclose(model(features, lengths)[0][0], result[0][0]));
}

TEST(SpeechModel, RefusesBadArguments) {
  auto options = small_speech_model("linear");
  options.phones = 0;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { SpeechModel{options}; }), "phones = 0");
  SpeechModel model(small_speech_model("linear"));
  const auto message = [&](const at::Tensor& features, const at::Tensor& lengths) {
    return message_of<c10::ValueError>([&] { model(features, lengths); });
  };
  const auto features = at::zeros({2, 3, 4});
  EXPECT_CONTAINS(message(at::zeros({2, 3, 5}), at::tensor({1, 1}, at::kLong)), "[2, 3, 5], expected [batch, length, 4]");
  EXPECT_CONTAINS(message(features, at::tensor({1}, at::kLong)), "frame_lengths is Long [1]");
  EXPECT_CONTAINS(message(features, at::tensor({1, 1}, at::kInt)), "expected int64 [2] on the CPU");
  EXPECT_CONTAINS(message(features, at::tensor({0, 1}, at::kLong)), "from 0 to 1, expected lengths from 1 to 3");
  EXPECT_CONTAINS(message(features, at::tensor({1, 4}, at::kLong)), "from 1 to 4, expected lengths from 1 to 3");
}

}  // namespace
}  // namespace experiments
