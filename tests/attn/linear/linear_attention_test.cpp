// Tests of linear attention: every form gives the same results, the chunk size does not change them, and nothing of size N×D×M is
// stored. Tests of feature maps and their gradients.
#include "attn/linear/linear_attention.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "harness/worker/cpu/memory.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::message_of;

class ChunkSize : public testing::TestWithParam<Masking> {};
INSTANTIATE_TEST_SUITE_P(Masks, ChunkSize, testing::Values(Masking::causal, Masking::causal_and_key_lengths),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(ChunkSize, DoesNotChangeTheResults) {
  const auto problem = problem_of({300, 300, 24, 40}, at::kDouble, GetParam(), 3);
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const auto expected = call(*make_method("linear-chunked"), inputs, Protocol::forward_backward);
  for (const auto* spec :
       {"linear-chunked:chunk=1", "linear-chunked:chunk=7", "linear-chunked:chunk=128", "linear-chunked:chunk=299",
        "linear-chunked:chunk=300", "linear-chunked:chunk=301", "linear-chunked:chunk=1000000"}) {
    SCOPED_TRACE(spec);
    const auto results = call(*make_method(spec), inputs, Protocol::forward_backward);
    expect_close(results, expected, 1e-12);
    EXPECT_TRUE(compare(*make_method(spec), inputs, results, Selection::everything(problem)).within(1e-10));
  }
}

// Compares the causal form with a loop over tokens, in which S and Z grow by one key at a time ("Transformers are RNNs",
// equations 16–20).
TEST(CausalLinear, AgreesWithTheRecurrence) {
  const auto inputs = inputs_of(problem_of({50, 50, 8, 5}, at::kDouble, Masking::causal), Protocol::forward);
  const auto phi = [](const at::Tensor& x) { return at::where(x > 0, x + 1, x.exp()); };
  auto state = at::zeros({2, 2, 8, 5}, at::kDouble), sum = at::zeros({2, 2, 8, 1}, at::kDouble);
  const auto output = linear_attention(inputs.q, inputs.k, inputs.v, {.causal = true, .chunk = 16, .implementation = "composed"});
  for (int64_t i = 0; i < 50; ++i) {
    const auto phi_k = phi(inputs.k.select(2, i)).unsqueeze(3), phi_q = phi(inputs.q.select(2, i)).unsqueeze(2);
    state = state + phi_k * inputs.v.select(2, i).unsqueeze(2);
    sum = sum + phi_k;
    const auto expected = at::matmul(phi_q, state) / (at::matmul(phi_q, sum) + 1e-6);
    EXPECT_LT(largest_difference(output.slice(2, i, i + 1), expected), 1e-12) << "position " << i;
  }
}

// Methods that compute one chunk, several chunks or token by token.
const std::string kForms[] = {"linear-chunked", "taylor:implementation=composed", "polynomial-2:implementation=composed",
                              "favor:implementation=composed", "rff"};

Results token_by_token(AttentionMethod& method, const CallInputs& inputs, const Problem& problem) {
  const auto state = method.begin_decoding(problem);
  std::vector<at::Tensor> outputs;
  for (int64_t i = 0; i < problem.query_len; ++i) outputs.push_back(method.step(*state, inputs.tokens(i, 1)));
  Results results;
  results.output = at::cat(outputs, 2);
  if (!inputs.grad_output.defined()) return results;
  const auto gradients = torch::autograd::grad({results.output}, {inputs.q, inputs.k, inputs.v}, {inputs.grad_output});
  results.output = results.output.detach();
  results.gradients = {gradients[0], gradients[1], gradients[2]};
  return results;
}

class Forms : public testing::TestWithParam<std::string> {
 protected:
  static std::string with_chunk(int chunk) {
    return GetParam() + (GetParam().find(':') == std::string::npos ? ":" : ",") + "chunk=" + std::to_string(chunk);
  }
};
INSTANTIATE_TEST_SUITE_P(Methods, Forms, testing::ValuesIn(kForms), [](const auto& tested) { return identifier(tested.param); });

// Compares the outputs and gradients of a single chunk with those of several chunks and of decoding token by token.
TEST_P(Forms, GiveTheSameResults) {
  for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-9}, {at::kFloat, 1e-3}, {at::kBFloat16, 4e-2}}) {
    SCOPED_TRACE(dtype_name(dtype));
    const auto problem = problem_of({70, 70, 16, 12}, dtype, Masking::causal);
    const auto inputs = inputs_of(problem, Protocol::forward_backward);
    const auto parallel = call(*make_method(with_chunk(1000)), inputs, Protocol::forward_backward);
    for (const int chunk : {1, 9, 64}) {
      SCOPED_TRACE(chunk);
      expect_close(call(*make_method(with_chunk(chunk)), inputs, Protocol::forward_backward), parallel, tolerance);
    }
    SCOPED_TRACE("token by token");
    expect_close(token_by_token(*make_method(GetParam()), inputs, problem), parallel, tolerance);
  }
}

// Compares the kernels with the composition, which the test above checks. Decoding steps of the kernels record no gradients.
TEST(KernelForms, GiveTheResultsOfTheComposition) {
  for (const std::string name : {"linear", "linear-elu0.1", "taylor", "polynomial-2", "favor"}) {
    for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-9}, {at::kFloat, 1e-3}, {at::kBFloat16, 4e-2}}) {
      SCOPED_TRACE(name + " " + dtype_name(dtype));
      const auto problem = problem_of({70, 70, 16, 12}, dtype, Masking::causal);
      const auto inputs = inputs_of(problem, Protocol::forward_backward);
      const auto own = make_method(name), composed = make_method(name + ":implementation=composed");
      const auto expected = call(*composed, inputs, Protocol::forward_backward);
      expect_close(call(*own, inputs, Protocol::forward_backward), expected, tolerance);
      expect_close(token_by_token(*composed, inputs, problem), expected, tolerance);
      EXPECT_CONTAINS(message_of<c10::ValueError>([&, p = problem] { token_by_token(*own, inputs, p); }), "records no gradients");
      const at::NoGradGuard no_grad;
      auto values = inputs;
      values.grad_output.reset();
      expect_close(token_by_token(*own, values, problem).output, expected.output, tolerance, "token by token");
    }
  }
}

// A feature map that exponentiates must work for keys whose features differ by more than the range of float32, whether the large
// ones come first or last.
TEST_P(Forms, HandleKeysOfVeryDifferentNorms) {
  for (const bool rising : {false, true}) {
    const auto problem = problem_of({64, 64, 16, 8}, at::kFloat, Masking::causal, 1, 2);
    auto inputs = inputs_of(problem, Protocol::forward_backward);
    auto sizes = at::linspace(0.01, 30, 64).view({1, 1, 64, 1});
    if (!rising) sizes = sizes.flip({2});
    inputs.k = (inputs.k.detach() * sizes).set_requires_grad(true);
    const auto method = make_method(with_chunk(16));
    const auto results = call(*method, inputs, Protocol::forward_backward);
    EXPECT_TRUE(all_finite(results.output)) << rising;
    for (const auto& gradient : gradients_in(results)) EXPECT_TRUE(all_finite(gradient.tensor)) << gradient.name << " " << rising;
    // Changes to later keys do not change earlier rows.
    auto earlier = inputs;
    earlier.k = inputs.k.detach().clone();
    earlier.k.slice(2, 40).mul_(3);
    const auto changed = call(*method, earlier, Protocol::forward);
    EXPECT_LT(largest_difference(changed.output.slice(2, 0, 40), results.output.slice(2, 0, 40)), 1e-6) << rising;
  }
}

TEST(CausalLinear, LaterPositionsDoNotChangeEarlierRows) {
  const auto problem = problem_of({100, 100, 16, 16}, at::kDouble, Masking::causal);
  auto inputs = inputs_of(problem, Protocol::forward);
  const auto method = make_method("linear-chunked:chunk=16");
  const auto before = call(*method, inputs, Protocol::forward).output;
  inputs.k.slice(2, 37).fill_(3);
  inputs.v.slice(2, 37).fill_(-5);
  const auto after = call(*method, inputs, Protocol::forward).output;
  EXPECT_LT(largest_difference(after.slice(2, 0, 37), before.slice(2, 0, 37)), 1e-14);
  EXPECT_GT(largest_difference(after.slice(2, 37), before.slice(2, 37)), 0.1);
}

// The gradients of q and k are differences of sums that contain the mean of v (attn/linear/value_shift.h).
TEST(LinearGradients, DoNotLoseDigitsToTheMeanOfTheValues) {
  for (const std::string spec :
       {"linear", "linear:implementation=portable", "linear-chunked", "linear-elu0.1", "taylor", "polynomial-2", "favor"})
    for (const auto masking : kMaskings)
      for (const double mean : {1.0, 100.0}) {
        SCOPED_TRACE(spec + " " + name_of(masking) + " mean " + std::to_string(mean));
        const auto problem = problem_of({1024, 1024, 32, 32}, at::kFloat, masking, 2, 1);
        auto inputs = inputs_of(problem, Protocol::forward_backward);
        inputs.v = (inputs.v.detach() + mean).set_requires_grad(true);
        const auto method = make_method(spec);
        const auto results = call(*method, inputs, Protocol::forward_backward);
        const auto expected = exact_results(*method, inputs);
        EXPECT_LE(error_of_late_rows(results.gradients.q, expected.gradients.q), 1e-5);
        EXPECT_LE(error_of_late_rows(results.gradients.k.slice(2, 0, 600), expected.gradients.k.slice(2, 0, 600)), 1e-5);
      }
  for (const double mean : {0.0, 1.0, 30.0, 100.0}) {
    SCOPED_TRACE("bfloat16, mean " + std::to_string(mean));
    auto inputs = inputs_of(problem_of({1024, 1024, 32, 32}, at::kBFloat16, Masking::causal), Protocol::forward_backward);
    inputs.v = (inputs.v.detach() + mean).set_requires_grad(true);
    const auto method = make_method("linear");
    EXPECT_LE(error_of_late_rows(call(*method, inputs, Protocol::forward_backward).gradients.q,
                                 exact_results(*method, inputs).gradients.q),
              1e-2);
  }
}

TEST(CausalLinear, PeakMemoryIsCloseToThatOfTheResults) {
  const auto method = make_method("linear");
  for (const auto masking : {Masking::causal, Masking::causal_and_key_lengths}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto problem = problem_of({16384, 16384, 64, 64}, dtype, masking, 1, 2);
      const auto inputs = make_inputs(problem, Protocol::forward_backward, 1);
      const attnbench::AllocationCounter counter;
      const auto results = call(*method, inputs, Protocol::forward_backward);
      const auto results_bytes = problem.output_bytes() + problem.input_bytes();
      EXPECT_GE(double(counter.peak_bytes()), results_bytes);
      EXPECT_LE(double(counter.peak_bytes()), 1.5 * results_bytes) << name_of(masking) << " " << dtype_name(dtype);
      EXPECT_LE(double(counter.largest_bytes()), problem.output_bytes());
    }
  }
}

TEST(CausalLinear, ForwardAllocatesLittleBesideItsOutput) {
  const auto problem = problem_of({16384, 16384, 64, 64}, at::kFloat, Masking::causal, 1, 2);
  const auto inputs = make_inputs(problem, Protocol::forward, 1);
  const auto method = make_method("linear");
  const attnbench::AllocationCounter counter;
  const auto results = call(*method, inputs, Protocol::forward);
  EXPECT_LE(double(counter.peak_bytes()), 1.25 * problem.output_bytes());
  EXPECT_EQ(double(counter.current_bytes()), problem.output_bytes());
}

// Half-precision inputs are accumulated in float32: a running sum in bfloat16 would stop growing after a few hundred positions.
TEST(CausalLinear, LongSumsInHalfPrecisionAreAccurate) {
  const auto problem = problem_of({8192, 8192, 8, 4}, at::kBFloat16, Masking::causal, 1, 1);
  auto inputs = make_inputs(problem, Protocol::forward, 1);
  inputs.v.fill_(1);  // any weighted mean of ones is one
  for (const auto* spec : {"linear", "linear-chunked:chunk=1"}) {
    const auto output = call(*make_method(spec), inputs, Protocol::forward).output;
    EXPECT_LT(largest_difference(output, at::ones_like(output)), 5e-3) << spec;
  }
}

class FeatureMaps : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kDim = 6;
  std::unique_ptr<const FeatureMap> map() const {
    const bool random = GetParam() == "favor" || GetParam() == "rff";
    return make_feature_map(GetParam(), random ? std::optional(draw_orthogonal_directions(10, kDim, 3)) : std::nullopt);
  }
  static at::Tensor vectors(int64_t count, uint64_t seed) {
    return make_inputs(problem_of({count, count, kDim, 1}, at::kDouble, Masking::none, 1, 2), Protocol::forward, seed)
        .q.flatten(0, 1);
  }
  static at::Tensor whole(const Features& f) { return f.log_scale.defined() ? f.phi * f.log_scale.exp() : f.phi; }
};
INSTANTIATE_TEST_SUITE_P(All, FeatureMaps, testing::Values("elu", "elu0.1", "relu", "taylor", "polynomial-2", "favor", "rff"),
                         [](const auto& tested) { return identifier(tested.param); });

TEST_P(FeatureMaps, InnerProductsOfFeaturesAreTheKernel) {
  const auto q = vectors(7, 1), k = vectors(9, 2);
  const auto map = this->map();
  const auto phi_q = map->apply(q), phi_k = map->apply(k);
  EXPECT_EQ(phi_q.phi.size(2), map->count(kDim));
  EXPECT_EQ(phi_q.log_scale.defined(), map->exponentiates());
  expect_close(at::bmm(whole(phi_q), whole(phi_k).transpose(1, 2)), map->kernel(q, k, at::zeros({}, at::kBool)), 1e-12, "kernel");
}

TEST_P(FeatureMaps, GradientIsTheDerivative) {
  const auto map = this->map();
  const auto x = vectors(7, 1).set_requires_grad(true);
  const auto features = map->apply(x);
  const auto upstream = at::sin(at::arange(features.phi.numel(), at::kDouble)).view(features.phi.sizes());
  // `upstream` is the gradient of a loss with respect to the features with their scale. FeatureMap::gradient() takes it with
  // respect to phi, the features relative to their scale.
  const auto expected = torch::autograd::grad({whole(features)}, {x}, {upstream})[0];
  const at::NoGradGuard no_grad;
  const auto relative = features.log_scale.defined() ? upstream * features.log_scale.exp() : upstream;
  expect_close(
      map->gradient(x, {features.phi.detach(), features.log_scale.defined() ? features.log_scale.detach() : at::Tensor()},
                    relative.detach()),
      expected, 1e-12, "gradient");
}

TEST(FeatureMap, EluByHand) {
  const auto x = at::tensor({-30.0, -2.0, -0.5, 0.5, 2.0, 30.0}, at::kDouble).view({1, 6, 1});
  const auto one = make_feature_map("elu")->apply(x).phi, tenth = make_feature_map("elu0.1")->apply(x).phi;
  for (int64_t i = 0; i < 6; ++i) {
    const auto value = x[0][i][0].item<double>();
    EXPECT_NEAR(one[0][i][0].item<double>(), value > 0 ? value + 1 : std::exp(value), 1e-15);
    EXPECT_NEAR(tenth[0][i][0].item<double>(), value > 0 ? value + 1 : 0.1 * (std::exp(value) - 1) + 1, 1e-15);
  }
}

// 1 + elu(x) would lose all digits there in float32, and these features decide the output if all of a query's are small.
TEST(FeatureMap, EluIsExactFarBelowZero) {
  const auto problem = problem_of({40, 40, 16, 8}, at::kFloat, Masking::none);
  for (const double mean : {-16.5, -20.0, -40.0}) {
    auto inputs = inputs_of(problem, Protocol::forward_backward);
    {
      const at::NoGradGuard no_grad;
      inputs.q.add_(mean);
    }
    for (const auto* spec : {"linear:implementation=auto", "linear:implementation=composed", "linear-chunked", "linear-einsum"}) {
      SCOPED_TRACE(std::string(spec) + " with queries around " + std::to_string(mean));
      const auto method = make_method(spec);
      const auto agreement =
          compare(*method, inputs, call(*method, inputs, Protocol::forward_backward), Selection::everything(problem));
      EXPECT_LT(agreement.max_row_error, 1e-5) << agreement.worst;
    }
  }
  const auto x = at::tensor({-90.0f, -20.0f, -16.5f}).view({1, 3, 1});
  const auto expected = x.to(at::kDouble).exp();
  EXPECT_LT((make_feature_map("elu")->apply(x).phi.to(at::kDouble) / expected - 1).abs().max().item<double>(), 1e-6);
}

TEST(FeatureMap, EluHasTheGradientOneAtZero) {
  const auto x = at::zeros({1, 3, 1}, at::kDouble).set_requires_grad(true);
  const auto phi = elu_plus_one(x);
  EXPECT_TRUE(at::equal(torch::autograd::grad({phi.sum()}, {x})[0], at::ones_like(x)));
}

TEST(LinearAttention, ARowThatSeesNoKeyIsZeroWithoutEpsilon) {
  for (const auto* map : {"elu", "favor"})
    for (const auto* kernel : {"auto", "composed"}) {
      SCOPED_TRACE(std::string(map) + " " + kernel);
      auto inputs = inputs_of(problem_of({20, 20, 16, 16}, at::kFloat, Masking::key_lengths), Protocol::forward_backward);
      LinearAttentionOptions options{.key_lengths = inputs.mask.key_lengths, .feature_map = map, .epsilon = 0};
      options.implementation = kernel;
      if (options.feature_map == "favor") options.projection = at::randn({8, 16});
      const auto output = linear_attention(inputs.q, inputs.k, inputs.v, options);
      EXPECT_TRUE(output[0].eq(0).all().item<bool>());
      EXPECT_FALSE(output[1].eq(0).any().item<bool>());
      for (const auto& gradient : torch::autograd::grad({output}, {inputs.q, inputs.k, inputs.v}, {inputs.grad_output})) {
        EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
        EXPECT_TRUE(gradient[0].eq(0).all().item<bool>());
      }
    }
}

TEST(FeatureMap, PolynomialIsTheExpansionOfExp) {
  const auto q = at::tensor({0.3, -0.2, 0.1, 0.4}, at::kDouble).view({1, 1, 4}),
             k = at::tensor({0.2, 0.5, -0.1, 0.3}, at::kDouble).view({1, 1, 4});
  const double s = (0.06 - 0.1 - 0.01 + 0.12) / 2;
  EXPECT_NEAR(make_feature_map("polynomial-2")->kernel(q, k, at::zeros({}, at::kBool)).item<double>(), 1 + s + s * s / 2, 1e-15);
  EXPECT_EQ(make_feature_map("polynomial-2")->count(64), 64 * 65 / 2 + 64 + 1);
}

// Random features estimate exp(q·k/√D). The estimate improves with their number.
TEST(FeatureMap, RandomFeaturesApproachTheSoftmaxKernel) {
  const auto q = 0.5 * at::sin(at::arange(40, at::kDouble)).view({1, 5, 8}),
             k = 0.5 * at::cos(at::arange(56, at::kDouble)).view({1, 7, 8});
  const auto exact = (at::bmm(q, k.transpose(1, 2)) / std::sqrt(8.0)).exp();
  for (const auto* name : {"favor", "rff"}) {
    double previous = 1;
    for (const int64_t count : {16, 256, 4096}) {
      const auto map = make_feature_map(name, draw_orthogonal_directions(count, 8, 1));
      const auto error = largest_difference(map->kernel(q, k, at::zeros({}, at::kBool)), exact);
      EXPECT_LT(error, previous) << name << " " << count;
      previous = error;
    }
    EXPECT_LT(previous, 0.05) << name;
  }
}

TEST(FeatureMap, DirectionsAreOrthogonalInBlocks) {
  const auto directions = draw_orthogonal_directions(10, 4, 7);
  ASSERT_EQ(directions.sizes(), (at::IntArrayRef{10, 4}));
  for (int64_t block = 0; block < 2; ++block) {
    auto products = at::matmul(directions.narrow(0, 4 * block, 4), directions.narrow(0, 4 * block, 4).t());
    products.fill_diagonal_(0);
    EXPECT_LT(products.abs().max().item<double>(), 1e-12);
  }
  EXPECT_TRUE(at::equal(directions, draw_orthogonal_directions(10, 4, 7)));
  EXPECT_FALSE(at::equal(directions, draw_orthogonal_directions(10, 4, 8)));
}

TEST(FeatureMap, InvalidArgumentsAreNamed) {
  const auto refusal = [](const std::string& name, const std::optional<at::Tensor>& projection) {
    return message_of<c10::ValueError>([&] { make_feature_map(name, projection); });
  };
  EXPECT_CONTAINS(refusal("gelu", {}), "unknown feature map 'gelu'; known: elu, elu0.1, favor, polynomial-2, relu, rff, taylor");
  EXPECT_CONTAINS(refusal("favor", {}), "feature map 'favor' needs a projection");
  EXPECT_CONTAINS(refusal("elu", at::ones({2, 2})), "feature map 'elu' takes no projection");
  EXPECT_CONTAINS(refusal("rff", at::ones({2})), "projection has shape [2], expected [directions, head_dim]");
  const auto x = at::ones({1, 1, 4, 8});
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] {
                    linear_attention(x, x, x, {.feature_map = "favor", .projection = at::ones({16, 4})});
                  }),
                  "projection has shape [16, 4], expected [directions, 8] as head_dim is 8");
}

}  // namespace
}  // namespace attn
