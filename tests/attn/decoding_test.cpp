// Tests of decoding that loop over every method that can decode. A step gives the last row of the reference over its prefix, a
// state has the size that state_bytes() says, and prefill() and extend() leave the same state as step().
#include "attn/decoding.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::message_of;

std::vector<std::string> decoding_specs() {
  std::vector<std::string> specs;
  for (const auto& spec : method_specs())
    if (make_method(spec)->capabilities().decoding) specs.push_back(spec);
  specs.emplace_back("test-gated");  // which reads a further tensor
  return specs;
}

at::Tensor step(AttentionMethod& method, DecodingState& state, const Inputs& inputs, int64_t i) {
  return method.step(state, inputs.tokens(i, 1));
}

Inputs in_float64(const Inputs& inputs) {
  return converted(inputs, [](const at::Tensor& x) { return x.to(at::kDouble); });
}

// The last row of the prefix that ends at token i, in float64.
at::Tensor expected_row(const AttentionMethod& method, const Inputs& inputs, int64_t i) {
  return method.reference(in_float64(inputs.tokens(0, i + 1)), at::tensor({i}, at::kLong));
}

class Decoding : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<AttentionMethod> method = make_method(GetParam());
  std::vector<at::ScalarType> dtypes() const {
    std::vector<at::ScalarType> can;
    for (const auto dtype : kDtypes)
      if (!method->why_unsupported(problem(dtype), Protocol::decode)) can.push_back(dtype);
    return can;
  }
  static Problem problem_without_pattern(Problem p) {
    p.pattern = {};
    return p;
  }
  static Problem problem(at::ScalarType dtype = at::kFloat, int64_t length = 75) {
    return problem_of({length, length, 24, 16}, dtype, Masking::causal);
  }
};
INSTANTIATE_TEST_SUITE_P(Registry, Decoding, testing::ValuesIn(decoding_specs()),
                         [](const auto& tested) { return identifier(tested.param); });

TEST_P(Decoding, AStepIsTheLastRowOfTheReferenceOverItsPrefix) {
  for (const auto dtype : dtypes()) {
    SCOPED_TRACE(dtype_name(dtype));
    const auto p = problem(dtype);
    const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
    const at::NoGradGuard no_grad;
    const auto state = method->begin_decoding(p);
    for (int64_t i = 0; i < p.query_len; ++i) {
      EXPECT_EQ(state->position(), i);
      const auto output = step(*method, *state, inputs, i);
      ASSERT_EQ(output.sizes(), (at::IntArrayRef{2, 2, 1, 16}));
      ASSERT_EQ(output.scalar_type(), dtype);
      expect_close(output, expected_row(*method, inputs, i), method->error_tolerance(dtype), "token " + std::to_string(i));
    }
    EXPECT_FALSE(method->implementation().empty());
  }
}

TEST_P(Decoding, StatesHaveTheSizeOfTheirFormula) {
  for (const auto dtype : dtypes()) {
    const auto p = problem(dtype);
    const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
    const at::NoGradGuard no_grad;
    const auto state = method->begin_decoding(p);
    for (const int64_t size : {0, 1, 30, 44}) {
      if (size == 1) step(*method, *state, inputs, 0);
      else if (size > 0) method->extend(*state, inputs.tokens(state->position(), size));
      EXPECT_EQ(double(state->bytes()), method->state_bytes(p, state->position()))
          << dtype_name(dtype) << " at " << state->position();
    }
    EXPECT_EQ(state->position(), 75);
    EXPECT_GT(state->bytes(), 0);
  }
}

TEST_P(Decoding, PrefillAndExtendLeaveTheSameStateAsSteps) {
  const auto p = problem();
  const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
  const at::NoGradGuard no_grad;
  constexpr int64_t kPrefix = 60;
  const auto prefix = inputs.tokens(0, kPrefix);
  const auto stepped = method->begin_decoding(p), extended = method->begin_decoding(p), prefilled = method->begin_decoding(p);
  for (int64_t i = 0; i < kPrefix; ++i) step(*method, *stepped, inputs, i);
  for (const auto& [from, size] : {std::pair{0, 1}, {1, 33}, {34, 26}}) method->extend(*extended, inputs.tokens(from, size));
  const auto outputs = method->prefill(*prefilled, prefix);
  EXPECT_EQ(extended->position(), kPrefix);
  EXPECT_EQ(prefilled->position(), kPrefix);
  const auto reference = method->reference(in_float64(prefix), at::arange(kPrefix));
  expect_close(outputs, reference, method->error_tolerance(at::kFloat), "prefill");
  for (int64_t i = kPrefix; i < p.query_len; ++i) {
    const auto expected = step(*method, *stepped, inputs, i);
    expect_close(step(*method, *extended, inputs, i), expected, 1e-4, "after extend");
    expect_close(step(*method, *prefilled, inputs, i), expected, 1e-4, "after prefill");
  }
}

// A state that a method continues gives the rows of the whole sequence, in whatever pieces it is given, and with more heads of
// values than of queries if the method shares heads.
TEST_P(Decoding, AContinuedPrefillGivesTheRowsOfTheSequence) {
  if (!method->capabilities().prefill_continues) return;
  for (const int64_t value_heads : {2, 6}) {
    auto p = problem();
    p.kv_heads = p.heads;
    p.value_heads = value_heads;
    const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
    const at::NoGradGuard no_grad;
    const auto state = method->begin_decoding(p);
    std::vector<at::Tensor> outputs;
    for (const int64_t size : {1, 33, 20}) outputs.push_back(method->prefill(*state, inputs.tokens(state->position(), size)));
    while (state->position() < p.query_len) outputs.push_back(step(*method, *state, inputs, state->position()));
    const auto reference = method->reference(in_float64(inputs).with_all_heads(), at::arange(p.query_len));
    expect_close(at::cat(outputs, 2), reference, method->error_tolerance(at::kFloat), std::to_string(value_heads) + " heads");
  }
}

// The cache of a window holds no more tokens than a token sees, so that new tokens take the places of old ones.
TEST_P(Decoding, WindowsAreDecodedBeyondTheirCache) {
  auto p = problem();
  p.pattern = Pattern::parse("strided:8");
  ASSERT_TRUE(method->why_unsupported(p, Protocol::decode));
  if (!method->capabilities().windows_in_decoding) return;
  if (method->capabilities().shared_heads == SharedHeads::read) {
    p.heads = 6;
    p.value_heads = 3;
    p.kv_heads = 3;
  }
  for (const auto* pattern :
       {"window:1", "window:16", "window:100", "window:9+first:4", "window:1+first:1", "window:70+first:30", "window:5+global:2"})
    for (const auto dtype : dtypes()) {
      SCOPED_TRACE(std::string(pattern) + " " + dtype_name(dtype));
      p.pattern = Pattern::parse(pattern);
      p.dtype = dtype;
      const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
      const auto reference = method->reference(in_float64(inputs).with_all_heads(), at::arange(p.query_len));
      const at::NoGradGuard no_grad;
      // The states are filled in several ways before the steps.
      const auto stepped = method->begin_decoding(p), extended = method->begin_decoding(p), prefilled = method->begin_decoding(p);
      EXPECT_EQ(double(stepped->bytes()), method->state_bytes(p, 0));
      EXPECT_LE(stepped->bytes(), method->begin_decoding(problem_without_pattern(p))->bytes());
      for (const int64_t size : {1, 2, 7, 30}) method->extend(*extended, inputs.tokens(extended->position(), size));
      expect_close(method->prefill(*prefilled, inputs.tokens(0, 40)), reference.narrow(2, 0, 40), method->error_tolerance(dtype),
                   "prefill");
      for (const auto& state : {stepped.get(), extended.get(), prefilled.get()})
        for (auto i = state->position(); i < p.query_len; ++i)
          expect_close(step(*method, *state, inputs, i), reference.narrow(2, i, 1), method->error_tolerance(dtype),
                       "token " + std::to_string(i));
    }
  const auto state = method->begin_decoding(p);
  auto other = make_inputs(*method, p, Protocol::forward, 1).tokens(0, 1);
  other.mask.pattern = {};
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { method->step(*state, other); }),
                  "tokens have the pattern all, expected window:5+global:2");
}

// A step reads, and has scores for, the keys that its window leaves it.
TEST_P(Decoding, AWindowCostsWhatATokenSees) {
  if (!method->capabilities().windows_in_decoding) return;
  for (const auto dtype : dtypes()) {
    auto p = problem(dtype, 2000);
    const auto all = method->cost(p, Protocol::decode);
    p.pattern = Pattern::parse("window:16");
    const auto window = method->cost(p, Protocol::decode);
    EXPECT_LT(window.peak_bytes, all.peak_bytes / 50) << dtype_name(dtype);
    EXPECT_NEAR(window.flops / all.flops, 16. / 2001, 1e-9);
  }
}

// Every step is given the sinks, with windows if the method decodes them.
TEST_P(Decoding, SinksAreInEveryStep) {
  auto p = problem();
  p.sinks = true;
  if (const auto reason = method->why_unsupported(p, Protocol::decode)) {
    EXPECT_CONTAINS(*reason, "takes no sinks");
    return;
  }
  if (method->capabilities().shared_heads == SharedHeads::read) {
    p.heads = 6;
    p.value_heads = 3;
    p.kv_heads = 3;
  }
  for (const auto* pattern : {"all", "window:9"})
    for (const auto dtype : dtypes()) {
      SCOPED_TRACE(std::string(pattern) + " " + dtype_name(dtype));
      p.pattern = Pattern::parse(pattern);
      p.dtype = dtype;
      if (method->why_unsupported(p, Protocol::decode)) continue;
      const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
      ASSERT_EQ(inputs.sinks.numel(), p.output_head_count());
      const auto reference = method->reference(in_float64(inputs).with_all_heads(), at::arange(p.query_len));
      const at::NoGradGuard no_grad;
      const auto state = method->begin_decoding(p);
      expect_close(method->prefill(*state, inputs.tokens(0, 20)), reference.narrow(2, 0, 20), method->error_tolerance(dtype),
                   "prefill");
      for (int64_t i = 20; i < p.query_len; ++i)
        expect_close(step(*method, *state, inputs, i), reference.narrow(2, i, 1), method->error_tolerance(dtype),
                     "token " + std::to_string(i));
      EXPECT_EQ(double(state->bytes()), method->state_bytes(p, p.query_len));
    }
  p.pattern = {};
  const auto state = method->begin_decoding(p);
  auto token = make_inputs(*method, p, Protocol::forward, 1).tokens(0, 1);
  token.sinks.reset();
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { method->step(*state, token); }),
                  "tokens have no sinks, expected sinks as in the decoding state");
}

TEST_P(Decoding, StatesAreIndependentOfEachOther) {
  const auto p = problem();
  const auto a = make_inputs(*method, p, Protocol::forward, 1), b = make_inputs(*method, p, Protocol::forward, 2);
  const at::NoGradGuard no_grad;
  const auto alone = method->begin_decoding(p), first = method->begin_decoding(p), second = method->begin_decoding(p);
  for (int64_t i = 0; i < 5; ++i) {
    const auto expected = step(*method, *alone, a, i);
    step(*method, *second, b, i);
    EXPECT_TRUE(at::equal(step(*method, *first, a, i), expected));
  }
}

TEST_P(Decoding, BoundStepsAreSteps) {
  const auto p = problem();
  const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
  const at::NoGradGuard no_grad;
  const auto stepped = method->begin_decoding(p), bound_to = method->begin_decoding(p);
  auto token = inputs.tokens(0, 1);
  token = converted(token, [](const at::Tensor& x) { return at::empty_like(x); });
  // The rows of the output have gaps between them, as those of a decoder that stores several outputs side by side.
  const auto output = at::full({2, 2, 1, 22}, 7.0f).narrow(3, 3, 16);
  const auto bound = method->bind_step(*bound_to, token, output, 2);
  if (!bound) return;  // TheMethodsOfFastDecodersHaveBoundSteps says which methods must have one
  for (int64_t i = 0; i < p.query_len; ++i) {
    const auto here = inputs.tokens(i, 1);
    for (const auto& spec : method->inputs())
      if (spec.is_part_of(p)) (token.*spec.member).copy_(here.*spec.member);
    bound->run(3, 4, 1);
    bound->run(0, 3, 0);
    bound->finish();
    expect_close(output, step(*method, *stepped, inputs, i), 1e-5, "token " + std::to_string(i));
    EXPECT_EQ(bound_to->position(), i + 1);
  }
  EXPECT_TRUE(bound->implementation().starts_with("kernel/")) << bound->implementation();
}

TEST_P(Decoding, BoundStepsCanBeMixedWithOtherCalls) {
  const auto p = problem();
  const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
  const at::NoGradGuard no_grad;
  const auto stepped = method->begin_decoding(p), mixed = method->begin_decoding(p);
  const auto token = inputs.tokens(40, 1);
  const auto output = at::empty_like(token.v);
  const auto bound = method->bind_step(*mixed, token, output, 1);
  if (!bound) return;  // TheMethodsOfFastDecodersHaveBoundSteps says which methods must have one
  for (const auto& state : {stepped.get(), mixed.get()}) method->prefill(*state, inputs.tokens(0, 40));
  bound->run(0, 4, 0);
  bound->finish();
  expect_close(output, step(*method, *stepped, inputs, 40), 1e-5, "after prefill");
  expect_close(step(*method, *mixed, inputs, 41), step(*method, *stepped, inputs, 41), 1e-5, "after a bound step");
}

TEST_P(Decoding, ErrorsNameTheMistake) {
  const auto p = problem(at::kFloat, 3);
  const auto inputs = make_inputs(*method, p, Protocol::forward, 1);
  const auto state = method->begin_decoding(p);
  const auto refusal = [&](const std::function<void()>& mistake) { return message_of<c10::ValueError>(mistake); };
  const auto wrong = make_inputs(problem_of({3, 3, 8, 16}, at::kFloat, Masking::causal), Protocol::forward, 1);
  EXPECT_CONTAINS(refusal([&] { step(*method, *state, wrong, 0); }), "tokens have head_dim 8, expected 24");
  const auto other_type = make_inputs(problem(at::kDouble, 3), Protocol::forward, 1);
  EXPECT_CONTAINS(refusal([&] { step(*method, *state, other_type, 0); }), "tokens are float64");
  EXPECT_CONTAINS(refusal([&] { method->step(*state, inputs); }), "a step takes one token, got 3");
  for (const Mask& mask : {Mask{.causal = false}, Mask{.causal = true, .key_lengths = at::full({2}, 3, at::kLong)}}) {
    const Inputs masked{inputs.q, inputs.k, inputs.v, mask};
    EXPECT_CONTAINS(refusal([&] { method->extend(*state, masked); }), "must be causal and without key lengths");
  }
  const auto token = inputs.tokens(0, 1);
  const auto gaps = at::empty({2, 2, 1, 32}).slice(3, 0, 32, 2);
  EXPECT_CONTAINS(refusal([&] { method->bind_step(*state, inputs, inputs.v, 1); }), "a step takes one token, got 3");
  EXPECT_CONTAINS(refusal([&] { method->bind_step(*state, token, token.q, 1); }), "the output of a step is Float [2, 2, 1, 24]");
  EXPECT_CONTAINS(refusal([&] { method->bind_step(*state, token, gaps, 1); }), "the rows of a bound step must be contiguous");
  EXPECT_CONTAINS(refusal([&] { method->bind_step(*state, token, token.v, 0); }), "workers = 0, expected at least 1");
  const auto other = make_method(GetParam());
  EXPECT_CONTAINS(refusal([&] { step(*other, *state, inputs, 0); }), "the decoding state belongs to another method");
  EXPECT_EQ(state->position(), 0);
  method->extend(*state, inputs);
  EXPECT_CONTAINS(refusal([&] { step(*method, *state, inputs, 0); }), "holds 3 of 3 tokens, 1 more do not fit");
  if (!method->capabilities().prefill_continues) {
    EXPECT_CONTAINS(refusal([&] {
                      const auto used = method->begin_decoding(p);
                      step(*method, *used, inputs, 0);
                      method->prefill(*used, inputs.tokens(1, 1));
                    }),
                    "prefill needs a fresh decoding state, this one holds 1 tokens");
  }
  auto masked = p;
  masked.key_lengths = KeyLengthDistribution::parse("uniform");
  EXPECT_CONTAINS(refusal([&] { method->begin_decoding(masked); }), "decoding takes no key lengths");
  masked = p;
  masked.causal = false;
  EXPECT_CONTAINS(refusal([&] { method->begin_decoding(masked); }), "decoding needs the causal mask");
}

#ifndef ATTN_CUDA_EMULATION
TEST(DecodingRegistry, TheMethodsOfFastDecodersHaveBoundSteps) {
  const auto p = problem_of({3, 3, 4, 4}, at::kFloat, Masking::causal);
  const auto token = make_inputs(p, Protocol::forward, 1).tokens(0, 1);
  for (const auto* name : {"linear", "stateful-softmax"}) {
    const auto method = make_method(name);
    const auto state = method->begin_decoding(p);
    EXPECT_NE(method->bind_step(*state, token, at::empty_like(token.v), 1), nullptr) << name;
  }
}

TEST(DecodingRegistry, KnowsWhichMethodsRecomputeThePrefix) {
  for (const auto* name : {"softmax", "lsh-1", "lsh-composed"})
    EXPECT_TRUE(make_method(name)->capabilities().steps_recompute_prefix) << name;
  for (const auto* name : {"stateful-softmax", "stateful-softmax-concat", "stateful-sdpa", "linear", "favor"})
    EXPECT_FALSE(make_method(name)->capabilities().steps_recompute_prefix) << name;
}

TEST(DecodingRegistry, HasEveryMethodWithAState) {
  const auto specs = decoding_specs();
  for (const auto* name : {"softmax", "stateful-softmax", "stateful-softmax-concat", "stateful-sdpa", "linear", "linear-elu0.1",
                           "linear-recurrent", "taylor", "polynomial-2", "favor", "rff"})
    EXPECT_NE(std::find(specs.begin(), specs.end(), name), specs.end()) << name;
  const auto method = make_method("efficient");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] {
                    method->begin_decoding(problem_of({3, 3, 4, 4}, at::kFloat, Masking::causal));
                  }),
                  "efficient does not decode");
}
#endif

}  // namespace
}  // namespace attn
