// Tests of multi-head attention. tests/python/experiments/test_experiments.py compares its numbers with PyTorch's.
#include "experiments/nn/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "attn/options.h"
#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;

AttentionOptions small_attention(const std::string& method, uint64_t seed = 0) {
  return {.method = method, .width = 6, .heads = 2, .head_dim = 4, .seed = seed};
}

at::Tensor output_of(MultiHeadAttention& attention, const at::Tensor& x) { return attention(x, attn::Mask{.causal = true}); }

TEST(MultiHeadAttention, HasProjectionsWithBias) {
  MultiHeadAttention attention(small_attention("softmax"));
  EXPECT_EQ(attention->query->weight.sizes(), (at::IntArrayRef{8, 6}));
  EXPECT_EQ(attention->key->bias.sizes(), (at::IntArrayRef{8}));
  EXPECT_EQ(attention->value->weight.sizes(), (at::IntArrayRef{8, 6}));
  EXPECT_EQ(attention->output->weight.sizes(), (at::IntArrayRef{6, 8}));
  EXPECT_EQ(attention->parameters().size(), 8u);
  EXPECT_EQ(output_of(attention, at::randn({3, 5, 6})).sizes(), (at::IntArrayRef{3, 5, 6}));
}

TEST(MultiHeadAttention, OfOneHeadIsTheFormula) {
  MultiHeadAttention attention(AttentionOptions{.method = "softmax", .width = 6, .heads = 1, .head_dim = 4});
  attention->to(at::kDouble);
  const auto x = at::randn({2, 7, 6}, at::kDouble);
  const auto q = attention->query(x), k = attention->key(x), v = attention->value(x);
  const auto weights = at::softmax(at::matmul(q, k.transpose(1, 2)) / 2, -1);
  EXPECT_TRUE(at::allclose(attention(x, attn::Mask{}), attention->output(at::matmul(weights, v)), 1e-10, 1e-12));
}

TEST(MultiHeadAttention, HeadsReadTheirOwnPartsOfTheProjections) {
  MultiHeadAttention attention(small_attention("softmax"));
  attention->to(at::kDouble);
  const auto x = at::randn({2, 5, 6}, at::kDouble);
  const auto before = attention(x, attn::Mask{});
  // With zeros for the output weights of head 1, its values have no influence.
  const at::NoGradGuard no_grad;
  attention->output->weight.narrow(1, 4, 4).zero_();
  const auto without = attention(x, attn::Mask{});
  attention->value->bias.narrow(0, 4, 4).fill_(7);
  EXPECT_TRUE(at::allclose(attention(x, attn::Mask{}), without, 1e-10, 1e-12));
  EXPECT_FALSE(at::allclose(before, without));
}

TEST(MultiHeadAttention, PaddingDoesNotReachValidPositions) {
  for (const auto* method :
       {"softmax", "linear", "lsh:chunk=4,profile=fast-transformers", "lsh-4:chunk=4", "favor", "gated-delta", "kda"}) {
    MultiHeadAttention attention(small_attention(method));
    const auto lengths = at::tensor({5, 12, 1}, at::kLong);
    const auto x = at::randn({3, 12, 6});
    auto other = x.clone();
    other[0].narrow(0, 5, 7).normal_();
    other[2].narrow(0, 1, 11).fill_(100);
    const attn::Mask mask{false, lengths};
    const auto a = attention(x, mask), b = attention(other, mask);
    for (int64_t i = 0; i < 3; ++i) {
      const auto length = lengths[i].item<int64_t>();
      EXPECT_TRUE(at::allclose(a[i].narrow(0, 0, length), b[i].narrow(0, 0, length), 1e-5, 1e-5)) << method;
    }
  }
}

TEST(MultiHeadAttention, EveryParameterThatTheMethodReadsGetsAGradient) {
  for (const auto* method : {"softmax", "linear", "lsh:chunk=4"}) {
    MultiHeadAttention attention(small_attention(method));
    output_of(attention, at::randn({2, 8, 6})).square().sum().backward();
    for (const auto& item : attention->named_parameters()) {
      // The gradient of the key's bias is zero with softmax, because it adds the same number to all scores of a query.
      const bool ignored = std::string(method) == "lsh:chunk=4" && item.key().substr(0, 3) == "key";
      EXPECT_EQ(item.value().grad().defined(), !ignored) << method << " " << item.key();
    }
  }
}

// ---------------------------------------------------------------- gates and directions

TEST(MultiHeadAttention, GatesFollowTheirFormulas) {
  for (const auto* method : {"gated-delta", "kda", "delta", "gla", "simple-gla"}) {
    MultiHeadAttention attention(small_attention(method));
    attention->to(at::kDouble);
    const auto x = at::randn({3, 5, 6}, at::kDouble);
    const auto inputs = attention->inputs_of(x, attn::Mask{.causal = true});
    const std::string name(method);
    const bool decays = name != "delta", of_features = name == "kda" || name == "gla", delta = name.ends_with("delta");
    EXPECT_EQ(inputs.beta.defined(), delta || name == "kda") << method;
    ASSERT_EQ(inputs.g.defined(), decays) << method;
    if (inputs.beta.defined()) {
      EXPECT_TRUE(at::allclose(inputs.beta, at::sigmoid(at::matmul(x, attention->beta->weight.t())).transpose(1, 2))) << method;
    }
    if (!decays) continue;
    ASSERT_EQ(inputs.g.sizes(), of_features ? (at::IntArrayRef{3, 2, 5, 4}) : (at::IntArrayRef{3, 2, 5})) << method;
    EXPECT_LT(inputs.g.max().item<double>(), 0) << method;
    auto through = at::matmul(x, of_features ? attention->gate_rank->weight.t() : attention->gate->weight.t());
    if (of_features) through = at::matmul(through, attention->gate->weight.t());
    for (int64_t head = 0; head < 2; ++head) {
      const auto rate = attention->log_decay[head].exp();
      EXPECT_GE(rate.item<double>(), 0.01 * 0.999);
      EXPECT_LE(rate.item<double>(), 16 * 1.001);
      const auto begin = of_features ? head * 4 : head, count = of_features ? int64_t{4} : int64_t{1};
      const auto steps = at::softplus(through.narrow(2, begin, count) + attention->gate_bias.narrow(0, begin, count));
      const auto expected = -rate * (of_features ? steps : steps.squeeze(2));
      EXPECT_TRUE(at::allclose(inputs.g.select(1, head), expected)) << method;
    }
    const auto first = at::softplus(attention->gate_bias);
    EXPECT_GE(first.min().item<double>(), 0.001 * 0.999);
    EXPECT_LE(first.max().item<double>(), 0.1 * 1.001);
  }
}

TEST(MultiHeadAttention, MethodsWithoutGatesHaveNoParametersOfThem) {
  EXPECT_FALSE(MultiHeadAttention(small_attention("linear"))->has_gates());
  EXPECT_TRUE(MultiHeadAttention(small_attention("delta"))->has_gates());
}

TEST(MultiHeadAttention, GatesGetGradients) {
  for (const auto* method : {"gated-delta", "kda"})
    for (const bool causal : {true, false}) {
      MultiHeadAttention attention(small_attention(method));
      attention(at::randn({2, 8, 6}), attn::Mask{causal}).square().sum().backward();
      for (const auto& item : attention->named_parameters()) {
        ASSERT_TRUE(item.value().grad().defined()) << method << " " << item.key();
        EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << method << " " << item.key();
      }
    }
}

// Without the causal mask, a recurrent method attends from both ends: the output is the sum over x and over its reverse.
TEST(MultiHeadAttention, RecurrentMethodsAddBothDirections) {
  for (const auto* method : {"gated-delta", "kda"}) {
    MultiHeadAttention attention(small_attention(method));
    attention->to(at::kDouble);
    const auto x = at::randn({3, 12, 6}, at::kDouble);
    const auto causal = [&](const at::Tensor& of) { return attention(of, attn::Mask{.causal = true}) - attention->output->bias; };
    const auto both = causal(x) + causal(x.flip(1)).flip(1) + attention->output->bias;
    EXPECT_TRUE(at::allclose(attention(x, attn::Mask{}), both, 1e-8, 1e-10)) << method;

    // A sequence that ends early is the same as one without padding.
    const attn::Mask mask{false, at::tensor({5, 12, 1}, at::kLong)};
    const auto padded = attention(x, mask);
    for (int64_t i = 0; i < 3; ++i) {
      const auto length = (*mask.key_lengths)[i].item<int64_t>();
      const auto alone = attention(x.narrow(0, i, 1).narrow(1, 0, length), attn::Mask{});
      EXPECT_TRUE(at::allclose(padded.narrow(0, i, 1).narrow(1, 0, length), alone, 1e-8, 1e-10)) << method << " " << i;
    }
  }
}

TEST(MultiHeadAttention, SeedsDecideTheHashes) {
  const auto x = at::randn({1, 64, 6});
  MultiHeadAttention attention(small_attention("lsh:chunk=4", 1));
  const auto first = output_of(attention, x);
  EXPECT_TRUE(at::equal(output_of(attention, x), first)) << "forward draws no new hashes";
  attention->set_seed(2);
  EXPECT_EQ(attention->options().seed, 2u);
  EXPECT_EQ(attention->method().label(), "lsh:chunk=4,seed=2");
  EXPECT_FALSE(at::equal(output_of(attention, x), first));
  attention->set_seed(1);
  EXPECT_TRUE(at::equal(output_of(attention, x), first));
}

TEST(MultiHeadAttention, CanBeReseededBetweenForwardAndBackward) {
  for (const auto* method : {"lsh:chunk=4", "lsh-composed:chunk=4", "favor"}) {
    MultiHeadAttention attention(small_attention(method, 1));
    const auto x = at::randn({1, 64, 6});
    const auto gradient = [&](bool reseed) {
      attention->zero_grad();
      attention->set_seed(1);
      const auto loss = output_of(attention, x).square().sum();
      if (reseed) attention->set_seed(2);
      loss.backward();
      return attention->query->weight.grad().clone();
    };
    EXPECT_TRUE(at::equal(gradient(true), gradient(false))) << method;
  }
}

TEST(MultiHeadAttention, IgnoresSeedsOfMethodsWithoutOne) {
  MultiHeadAttention attention(small_attention("softmax", ~uint64_t{0}));
  attention->set_seed(3);
  EXPECT_EQ(attention->method().label(), "softmax");
  EXPECT_FALSE(has_seed("softmax"));
  EXPECT_TRUE(has_seed("lsh-4"));
  EXPECT_TRUE(has_seed("lsh:rounds=2"));
}

TEST(MultiHeadAttention, LayersHaveSeedsOfTheirOwn) {
  std::set<uint64_t> seeds;
  for (const uint64_t model : {0u, 1u, 2u, 1000u})
    for (int64_t layer = 0; layer < 16; ++layer) {
      const auto seed = layer_seed(model, layer);
      EXPECT_LE(seed, uint64_t(attn::kMaxSeed));
      // PyTorch's generator of the CPU reads the lower 32 bits alone.
      seeds.insert(seed & 0xffffffff);
    }
  EXPECT_EQ(seeds.size(), 64u);
}

TEST(MultiHeadAttention, RefusesBadArguments) {
  const auto message = [](AttentionOptions options) { return message_of<c10::ValueError>([&] { MultiHeadAttention{options}; }); };
  EXPECT_CONTAINS(message({.method = "softmax", .width = 0, .heads = 1, .head_dim = 1}), "width = 0");
  EXPECT_CONTAINS(message({.method = "softmax", .width = 1, .heads = 0, .head_dim = 1}), "heads = 0");
  EXPECT_CONTAINS(message({.method = "softmax", .width = 1, .heads = 1, .head_dim = -1}), "head_dim = -1");
  EXPECT_CONTAINS(message(small_attention("sotfmax")), "sotfmax");
  EXPECT_CONTAINS(message(small_attention("lsh:rounds=2,seed=4")), "sets the option seed");
  EXPECT_CONTAINS(message(small_attention("lsh", uint64_t(attn::kMaxSeed) + 1)), "seed = ");
  MultiHeadAttention attention(small_attention("softmax"));
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] {
                    output_of(attention, at::zeros({2, 3, 5}));
                  }),
                  "[2, 3, 5], expected [batch, length, 6]");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { output_of(attention, at::zeros({3, 6})); }), "[3, 6]");
}

}  // namespace
}  // namespace experiments
