// Causal linear attention in chunks: the chunk size changes nothing but the time, and nothing of size N×D×M is stored.
#include "attn/causal_linear.h"

#include <gtest/gtest.h>

#include "harness/worker/memory.h"
#include "tests/errors_of.h"
#include "tests/method_helpers.h"

namespace attn {
namespace {

using attnbench::message_of;

class ChunkSize : public testing::TestWithParam<Masking> {};
INSTANTIATE_TEST_SUITE_P(Masks, ChunkSize, testing::Values(Masking::causal, Masking::causal_and_key_lengths),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(ChunkSize, DoesNotMatter) {
  const auto problem = problem_of({300, 300, 24, 40}, at::kDouble, GetParam(), 3);
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const auto expected = call(*make_method("linear"), inputs, Protocol::forward_backward);
  for (const auto* spec : {"linear:chunk=1", "linear:chunk=7", "linear:chunk=128", "linear:chunk=299", "linear:chunk=300",
                           "linear:chunk=301", "linear:chunk=1000000"}) {
    SCOPED_TRACE(spec);
    const auto results = call(*make_method(spec), inputs, Protocol::forward_backward);
    expect_close(results, expected, 1e-12);
    EXPECT_TRUE(
        compare(*make_method(spec), inputs, results, Protocol::forward_backward, Selection::everything(problem)).within(1e-10));
  }
}

// The causal form token by token: S and Z grow by one key at a time ("Transformers are RNNs", equations 16–20).
TEST(CausalLinear, IsTheRecurrence) {
  const auto inputs = inputs_of(problem_of({50, 50, 8, 5}, at::kDouble, Masking::causal), Protocol::forward);
  const auto& map = find_feature_map("elu");
  auto state = at::zeros({2, 2, 8, 5}, at::kDouble), sum = at::zeros({2, 2, 8, 1}, at::kDouble);
  const auto output = causal_linear_attention(inputs.q, inputs.k, inputs.v, std::nullopt, map, 1e-6, 16);
  for (int64_t i = 0; i < 50; ++i) {
    const auto phi_k = map.apply(inputs.k.select(2, i)).unsqueeze(3), phi_q = map.apply(inputs.q.select(2, i)).unsqueeze(2);
    state = state + phi_k * inputs.v.select(2, i).unsqueeze(2);
    sum = sum + phi_k;
    const auto expected = at::matmul(phi_q, state) / (at::matmul(phi_q, sum) + 1e-6);
    EXPECT_LT(largest_difference(output.slice(2, i, i + 1), expected), 1e-12) << "position " << i;
  }
}

TEST(CausalLinear, LaterPositionsDoNotReachEarlierOnes) {
  const auto problem = problem_of({100, 100, 16, 16}, at::kDouble, Masking::causal);
  auto inputs = inputs_of(problem, Protocol::forward);
  const auto method = make_method("linear:chunk=16");
  const auto before = call(*method, inputs, Protocol::forward).output;
  inputs.k.slice(2, 37).fill_(3);
  inputs.v.slice(2, 37).fill_(-5);
  const auto after = call(*method, inputs, Protocol::forward).output;
  EXPECT_LT(largest_difference(after.slice(2, 0, 37), before.slice(2, 0, 37)), 1e-14);
  EXPECT_GT(largest_difference(after.slice(2, 37), before.slice(2, 37)), 0.1);
}

TEST(CausalLinear, MemoryIsThatOfItsResults) {
  const auto method = make_method("linear");
  for (const auto masking : {Masking::causal, Masking::causal_and_key_lengths}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto problem = problem_of({16384, 16384, 64, 64}, dtype, masking, 1, 2);
      const auto inputs = make_inputs(problem, Protocol::forward_backward, 1);
      const attnbench::AllocationCounter counter;
      const auto results = call(*method, inputs, Protocol::forward_backward);
      const auto least = problem.output_bytes() + problem.input_bytes();
      EXPECT_GE(double(counter.peak_bytes()), least);
      EXPECT_LE(double(counter.peak_bytes()), 1.5 * least) << name_of(masking) << " " << dtype_name(dtype);
      EXPECT_LE(double(counter.largest_bytes()), problem.output_bytes());
    }
  }
}

TEST(CausalLinear, ForwardAloneKeepsItsOutputOnly) {
  const auto problem = problem_of({16384, 16384, 64, 64}, at::kFloat, Masking::causal, 1, 2);
  const auto inputs = make_inputs(problem, Protocol::forward, 1);
  const auto method = make_method("linear");
  const attnbench::AllocationCounter counter;
  const auto results = call(*method, inputs, Protocol::forward);
  EXPECT_LE(double(counter.peak_bytes()), 1.25 * problem.output_bytes());
  EXPECT_EQ(double(counter.current_bytes()), problem.output_bytes());
}

// Sums stay float32 for half-precision inputs: a running sum in bfloat16 stops growing after a few hundred positions.
TEST(CausalLinear, LongSumsInHalfPrecision) {
  const auto problem = problem_of({8192, 8192, 8, 4}, at::kBFloat16, Masking::causal, 1, 1);
  auto inputs = make_inputs(problem, Protocol::forward, 1);
  inputs.v.fill_(1);  // any weighted mean of ones is one
  for (const auto* spec : {"linear", "linear:chunk=1"}) {
    const auto output = call(*make_method(spec), inputs, Protocol::forward).output;
    EXPECT_LT(largest_difference(output, at::ones_like(output)), 5e-3) << spec;
  }
}

TEST(FeatureMap, GradientIsTheDerivative) {
  const auto& map = find_feature_map("elu");
  const auto x = at::tensor({-30.0, -2.0, -0.5, -1e-3, 1e-3, 0.5, 2.0, 30.0}, at::kDouble);
  const auto upstream = at::arange(1, 9, at::kDouble);
  const auto phi = map.apply(x);
  for (int64_t i = 0; i < 8; ++i) {
    const auto at = x[i].item<double>();
    EXPECT_NEAR(phi[i].item<double>(), at > 0 ? at + 1 : std::exp(at), 1e-15);
    const auto slope = at > 0 ? 1 : std::exp(at);
    EXPECT_NEAR(map.gradient(x, phi, upstream)[i].item<double>(), slope * double(i + 1), 1e-14);
  }
}

TEST(FeatureMap, UnknownOnesListTheKnown) {
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { find_feature_map("relu"); }), "unknown feature map 'relu'; known: elu");
}

}  // namespace
}  // namespace attn
