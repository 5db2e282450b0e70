// Tests of a method's inputs: the table that declares them, tokens(), which gives views of a range of tokens, and problem_of(),
// which reads a problem from tensors and mask.
#include "attn/input_spec.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/errors_of.h"
#include "tests/support/gated.h"

namespace attn {
namespace {

using attnbench::contains;
using attnbench::message_of;

// Causal inputs [1,2,5,·] whose entries are all different.
Inputs numbered() {
  const auto numbers = [](int64_t dim, double from) { return at::arange(from, from + 2 * 5 * double(dim)).view({1, 2, 5, dim}); };
  Inputs inputs{numbers(3, 0), numbers(3, 100), numbers(4, 200), {.causal = true}};
  inputs.g = -numbers(1, 300).squeeze(3);
  return inputs;
}

TEST(InputsOfAMethod, TokensAreViewsOfEveryTensor) {
  auto inputs = numbered();
  inputs.beta = -inputs.g;
  inputs.sinks = at::ones({2});
  const auto part = inputs.tokens(1, 3);
  for (const auto& spec : kInputs) {
    const auto& whole = inputs.*spec.member;
    EXPECT_TRUE(at::equal(part.*spec.member, spec.position_axis() < 0 ? whole : whole.narrow(2, 1, 3))) << spec.name;
    EXPECT_TRUE((part.*spec.member).is_alias_of(inputs.*spec.member)) << spec.name;
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

TEST(InputSpec, SaysShapeDtypeAndBytes) {
  Problem p;
  p.batch = 2;
  p.heads = 3;
  p.query_len = 5;
  p.key_len = 7;
  p.head_dim = 4;
  p.value_dim = 6;
  p.dtype = at::kBFloat16;
  EXPECT_EQ(find_input("q").sizes(p), (std::vector<int64_t>{2, 3, 5, 4}));
  EXPECT_EQ(find_input("v").sizes(p), (std::vector<int64_t>{2, 3, 7, 6}));
  EXPECT_EQ(find_input("g").sizes(p), (std::vector<int64_t>{2, 3, 7}));
  EXPECT_EQ(find_input("g").position_axis(), 2);
  EXPECT_EQ(find_input("q").dtype(at::kBFloat16), at::kBFloat16);
  EXPECT_EQ(find_input("g").dtype(at::kBFloat16), at::kFloat);
  EXPECT_EQ(find_input("g").dtype(at::kDouble), at::kDouble);
  EXPECT_EQ(find_input("q").bytes(p), 2. * 3 * 5 * 4 * 2);
  EXPECT_EQ(find_input("g").bytes(p), 2. * 3 * 7 * 4);
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { find_input("gate"); }), "unknown input 'gate', expected one of q, k, v, g");
}

TEST(InputSpec, FurtherTensorsAreCheckedLikeTheOthers) {
  Gated method;
  const auto refusal = [&](const at::Tensor& g) {
    auto inputs = numbered();
    inputs.g = g;
    return message_of<c10::ValueError>([&] { method.forward(inputs); });
  };
  EXPECT_CONTAINS(refusal(at::zeros({1, 2, 4})), "g has length 4, expected 5 as in k");
  EXPECT_CONTAINS(refusal(at::zeros({1, 3, 5})), "g has heads 3, expected 2 as in v");
  EXPECT_CONTAINS(refusal(at::zeros({1, 2, 5, 1})), "g has shape [1, 2, 5, 1], expected [batch, heads, length]");
  EXPECT_CONTAINS(refusal(at::zeros({1, 2, 5}, at::kBFloat16)), "g is bfloat16, expected float32 beside q in float32");
  EXPECT_CONTAINS(refusal(at::zeros({1, 2, 5}, at::kMeta)), "g is on meta but q is on cpu");
  auto inputs = numbered();
  EXPECT_NO_THROW(method.forward(inputs));
  const auto state = method.begin_decoding(problem_of(inputs));
  auto token = inputs.tokens(0, 1);
  token.g = inputs.g;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { method.step(*state, token); }), "g has length 5, expected 1 as in k");
}

TEST(InputSpec, ATensorThatTheMethodDoesNotReadIsRefused) {
  const auto method = make_method("softmax");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { method->forward(numbered()); }), "softmax does not read the input g");
}

TEST(InputsOfAMethod, RepeatSharedHeads) {
  const auto numbers = [](int64_t heads) { return at::arange(heads, at::kFloat).view({1, heads, 1, 1}); };
  Inputs inputs{numbers(2), numbers(2), numbers(4)};
  inputs.part = Part{at::tensor({0}, at::kLong), at::tensor({3, 5}, at::kLong), 8};
  const auto all = inputs.with_all_heads();
  EXPECT_TRUE(at::equal(all.q.flatten(), at::tensor({0.f, 0.f, 1.f, 1.f})));
  EXPECT_TRUE(at::equal(all.k, all.q));
  EXPECT_TRUE(all.v.is_alias_of(inputs.v));
  EXPECT_TRUE(at::equal(all.head_indices(), at::tensor({6, 7, 10, 11}, at::kLong)));
  EXPECT_EQ(all.heads_of_call(), 16);
  Problem p = problem_of(inputs);
  EXPECT_EQ(p.output_head_count(), 4);
  EXPECT_EQ(p.head_groups(), 2);
  EXPECT_TRUE(p.heads_are_shared());
}

TEST(InputSpec, SinksAreOfTheHeadsOfTheOutput) {
  const auto& spec = find_input("sinks");
  Problem p;
  p.heads = 2;
  p.value_heads = 6;
  p.dtype = at::kBFloat16;
  EXPECT_EQ(spec.sizes(p), std::vector<int64_t>{6});
  EXPECT_EQ(spec.dtype(at::kBFloat16), at::kFloat);
  EXPECT_FALSE(spec.has_batch());
  EXPECT_EQ(spec.head_axis(), 0);
  EXPECT_EQ(spec.position_axis(), -1);
  EXPECT_FALSE(spec.is_part_of(p));
  const auto bytes = p.input_bytes();
  p.sinks = true;
  EXPECT_TRUE(spec.is_part_of(p));
  EXPECT_EQ(p.input_bytes() - bytes, spec.bytes(p));

  const auto method = make_method("softmax");
  const auto refusal = [&](const at::Tensor& sinks) {
    auto inputs = numbered();
    inputs.g.reset();
    inputs.sinks = sinks;
    EXPECT_EQ(inputs.output_heads(), 2);
    return message_of<c10::ValueError>([&] { method->forward(inputs); });
  };
  EXPECT_CONTAINS(refusal(at::zeros({2, 1})), "sinks has shape [2, 1], expected [heads]");
  EXPECT_CONTAINS(refusal(at::zeros({2}, at::kDouble)), "sinks is float64, expected float32 beside q in float32");
  auto inputs = numbered();
  inputs.g.reset();
  inputs.sinks = at::zeros({3});
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { method->forward(inputs); }), "sinks has heads 3, expected 2");
  inputs.sinks = at::full({2}, -1e9);  // the same as none
  const auto output = method->forward(inputs);
  inputs.sinks.reset();
  EXPECT_TRUE(at::equal(output, method->forward(inputs)));
}

TEST(InputSpec, AnOptionalTensorMayBeUndefined) {
  Gated method;
  auto inputs = numbered();
  inputs.g.reset();
  EXPECT_TRUE(at::allclose(method.forward(inputs).to(at::kDouble), method.reference(inputs, at::arange(5)).to(at::kDouble)));
}

}  // namespace
}  // namespace attn
