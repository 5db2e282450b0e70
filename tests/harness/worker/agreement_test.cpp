// The check that stands before every time: it must see what is wrong, and only that.
#include "attn/agreement.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/support/causal_mean.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

class AgreementTest : public testing::Test {
 protected:
  const Problem problem_ = problem_of({12, 12, 4, 6}, at::kFloat, Masking::none);
  const Inputs inputs_ = inputs_of(problem_, Protocol::forward_backward);
  const std::shared_ptr<AttentionMethod> method_ = make_method("softmax");
  Results results_ = call(*method_, inputs_, Protocol::forward_backward);

  Agreement agreement() const {
    return compare(*method_, inputs_, results_, Protocol::forward_backward, Selection::everything(problem_));
  }
};

TEST_F(AgreementTest, RightResultsAgree) {
  const auto found = agreement();
  EXPECT_TRUE(found.within(1e-5));
  EXPECT_GT(found.max_rel_error, 0);
  EXPECT_FALSE(found.within(found.max_rel_error / 2));
}

TEST_F(AgreementTest, OneWrongEntryOfAnyTensorIsSeen) {
  const auto correct = results_;
  for (const auto& [name, member] :
       {std::pair<const char*, at::Tensor Results::*>{"output", &Results::output}, kGradients[0], kGradients[1], kGradients[2]}) {
    for (const int64_t entry : {int64_t{0}, (correct.*member).numel() - 1}) {
      results_ = correct;
      results_.*member = (correct.*member).clone(at::MemoryFormat::Contiguous);
      const auto scale = (correct.*member).abs().max().item<double>();
      (results_.*member).view(-1)[entry].add_(0.01 * scale);
      const auto found = agreement();
      EXPECT_FALSE(found.within(1e-3)) << name;
      EXPECT_TRUE(found.finite);
      EXPECT_EQ(found.worst, name);
      EXPECT_NEAR(found.max_abs_error, 0.01 * scale, 1e-5 * scale);
      EXPECT_LE(found.max_rel_error, 0.0101);
    }
  }
}

TEST_F(AgreementTest, ScaledAndPermutedResultsAreSeen) {
  const auto correct = results_;
  results_.output = correct.output * 1.01;
  EXPECT_FALSE(agreement().within(5e-3));
  results_.output = correct.output.flip(2);
  EXPECT_FALSE(agreement().within(0.1));
  results_.output = correct.output.flip(1);
  EXPECT_FALSE(agreement().within(0.1));
  results_ = correct;
  results_.v_gradient = correct.v_gradient.flip(0);
  EXPECT_FALSE(agreement().within(0.1));
}

TEST_F(AgreementTest, OneNanOrInfinityIsSeen) {
  const auto correct = results_;
  for (const double value : {std::nan(""), double(INFINITY), -double(INFINITY)}) {
    for (const auto member : {&Results::output, &Results::q_gradient, &Results::k_gradient, &Results::v_gradient}) {
      results_ = correct;
      results_.*member = (correct.*member).clone(at::MemoryFormat::Contiguous);
      (results_.*member).view(-1)[5].fill_(value);
      EXPECT_FALSE(agreement().within(1e300));
    }
  }
}

// Rows that are not selected are not compared, but a NaN there is one all the same.
TEST_F(AgreementTest, NanOutsideTheSelectionIsSeen) {
  const Selection first{at::tensor({0}, at::kLong), at::tensor({0}, at::kLong), at::tensor({0, 11}, at::kLong)};
  const auto inputs = restrict_gradient(inputs_, first);
  auto results = call(*method_, inputs, Protocol::forward_backward);
  EXPECT_TRUE(compare(*method_, inputs, results, Protocol::forward_backward, first).within(1e-5));
  results.output = results.output.clone();
  results.output[1][1][5][0].fill_(1e6);
  EXPECT_TRUE(compare(*method_, inputs, results, Protocol::forward_backward, first).within(1e-5));
  results.output[1][1][5][0].fill_(std::nan(""));
  EXPECT_FALSE(compare(*method_, inputs, results, Protocol::forward_backward, first).within(1e300));
}

TEST_F(AgreementTest, SelectedRowsAreSeenAndOthersAreNot) {
  const Selection some{at::tensor({1}, at::kLong), at::tensor({0}, at::kLong), at::tensor({3, 7}, at::kLong)};
  const auto inputs = restrict_gradient(inputs_, some);
  const auto correct = call(*method_, inputs, Protocol::forward_backward);
  auto results = correct;
  for (const int64_t row : {3, 7, 4}) {
    results.output = correct.output.clone();
    results.output[1][0][row].mul_(1.5);
    EXPECT_EQ(compare(*method_, inputs, results, Protocol::forward_backward, some).within(1e-3), row == 4) << row;
  }
}

// With one key the softmax does not depend on q: what a method returns there is rounding, not a wrong gradient.
TEST_F(AgreementTest, AVanishingGradientHasNoScaleOfItsOwn) {
  for (const auto* name : {"softmax", "sdpa"}) {
    const auto method = make_method(name);
    const auto problem = problem_of({9, 1, 16, 16}, at::kBFloat16, Masking::none);
    const auto inputs = inputs_of(problem, Protocol::forward_backward);
    auto results = call(*method, inputs, Protocol::forward_backward);
    const auto everything = Selection::everything(problem);
    EXPECT_TRUE(compare(*method, inputs, results, Protocol::forward_backward, everything).within(error_tolerance(at::kBFloat16)));
    results.q_gradient = at::full_like(results.q_gradient, 0.1 * results.v_gradient.abs().max().item<double>());
    EXPECT_FALSE(
        compare(*method, inputs, results, Protocol::forward_backward, everything).within(error_tolerance(at::kBFloat16)));
  }
}

TEST(Agreement, IncludeKeepsTheWorse) {
  Agreement small{1, 1e-6, "output", true}, large{0.5, 1e-3, "k gradient", true},
      nan{std::nan(""), std::nan(""), "v gradient", false};
  auto both = small;
  both.include(large);
  EXPECT_EQ(both.max_abs_error, 1);
  EXPECT_EQ(both.max_rel_error, 1e-3);
  EXPECT_EQ(both.worst, "k gradient");
  both = large;
  both.include(small);
  EXPECT_EQ(both.max_rel_error, 1e-3);
  EXPECT_EQ(both.worst, "k gradient");
  both = nan;
  both.include(small);
  EXPECT_FALSE(both.within(1e300));
  both = small;
  both.include(nan);
  EXPECT_FALSE(both.within(1e300));
}

TEST(Agreement, TolerancesOfKnownTypes) {
  EXPECT_LT(error_tolerance(at::kDouble), error_tolerance(at::kFloat));
  EXPECT_LT(error_tolerance(at::kFloat), error_tolerance(at::kHalf));
  EXPECT_LT(error_tolerance(at::kHalf), error_tolerance(at::kBFloat16));
  EXPECT_LT(error_tolerance(at::kBFloat16), 0.1);
  EXPECT_THROW(error_tolerance(at::kLong), c10::ValueError);
}

TEST(MakeInputs, SameFromTheSameSeedWhateverTheThreads) {
  // More numbers than one generator draws.
  const auto problem = problem_of({5000, 5000, 64, 64}, at::kFloat, Masking::key_lengths, 2, 4);
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = make_inputs(problem, Protocol::forward_backward, 3);
  at::set_num_threads(2);
  const auto two = make_inputs(problem, Protocol::forward_backward, 3),
             other = make_inputs(problem, Protocol::forward_backward, 4);
  at::set_num_threads(threads);
  for (const auto member : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::output_gradient}) {
    EXPECT_TRUE(at::equal(one.*member, two.*member));
    EXPECT_FALSE(at::equal(one.*member, other.*member));
  }
  EXPECT_TRUE(at::equal(*one.mask.key_lengths, *two.mask.key_lengths));
}

TEST(MakeInputs, IndependentStandardNormals) {
  const auto problem = problem_of({2048, 2048, 64, 64}, at::kFloat, Masking::none, 2, 8);
  const auto inputs = make_inputs(problem, Protocol::forward_backward, 1);
  const at::Tensor* const all[] = {&inputs.q, &inputs.k, &inputs.v, &inputs.output_gradient};
  for (size_t i = 0; i < 4; ++i) {
    const auto x = all[i]->detach().view(-1);
    EXPECT_NEAR(x.mean().item<double>(), 0, 5e-3);
    EXPECT_NEAR(x.std().item<double>(), 1, 5e-3);
    // Neither tensors nor stretches within one repeat each other.
    for (size_t j = 0; j < i; ++j) EXPECT_NEAR((x * all[j]->detach().view(-1)).mean().item<double>(), 0, 5e-3);
    const auto half = x.numel() / 2;
    EXPECT_NEAR((x.slice(0, 0, half) * x.slice(0, half)).mean().item<double>(), 0, 5e-3);
  }
  EXPECT_TRUE(inputs.q.requires_grad() && inputs.k.requires_grad() && inputs.v.requires_grad());
  const auto forward = make_inputs(problem, Protocol::forward, 1);
  EXPECT_FALSE(forward.q.requires_grad());
  EXPECT_FALSE(forward.output_gradient.defined());
  EXPECT_TRUE(at::equal(forward.q, inputs.q));
}

constexpr InputDistribution kDistributions[] = {InputDistribution::normal, InputDistribution::clustered,
                                                InputDistribution::repeated};

TEST(MakeInputs, EveryDistributionIsTheSameWhateverTheThreads) {
  const auto problem = problem_of({5000, 5000, 64, 64}, at::kFloat, Masking::none, 1, 4);
  const auto threads = at::get_num_threads();
  const auto normal = make_inputs(problem, Protocol::forward_backward, 3);
  for (const auto distribution : kDistributions) {
    at::set_num_threads(1);
    const auto one = make_inputs(problem, Protocol::forward_backward, 3, distribution);
    at::set_num_threads(2);
    const auto two = make_inputs(problem, Protocol::forward_backward, 3, distribution),
               other = make_inputs(problem, Protocol::forward_backward, 4, distribution);
    at::set_num_threads(threads);
    for (const auto member : {&Inputs::q, &Inputs::k}) {
      EXPECT_TRUE(at::equal(one.*member, two.*member));
      EXPECT_FALSE(at::equal(one.*member, other.*member));
      EXPECT_TRUE((one.*member).is_contiguous());
      EXPECT_NEAR((one.*member).mean().item<double>(), 0, 0.1);
      EXPECT_NEAR((one.*member).std().item<double>(), 1, 0.1);
      EXPECT_EQ(at::equal(one.*member, normal.*member), distribution == InputDistribution::normal);
    }
    EXPECT_TRUE(at::equal(one.v, normal.v));
    EXPECT_TRUE(at::equal(one.output_gradient, normal.output_gradient));
    EXPECT_TRUE(one.q.requires_grad());
  }
}

TEST(MakeInputs, RepeatedIsABlockOfRowsOverAndOver) {
  const auto problem = problem_of({200, 200, 8, 8}, at::kFloat, Masking::none);
  const auto inputs = make_inputs(problem, Protocol::forward, 1, InputDistribution::repeated);
  for (const auto& x : {inputs.q, inputs.k}) {
    EXPECT_TRUE(at::equal(x.narrow(2, 64, 136), x.narrow(2, 0, 136)));
    for (const int64_t row : {1, 32, 63}) EXPECT_FALSE(at::equal(x.select(2, 0), x.select(2, row)));
  }
  EXPECT_FALSE(at::equal(inputs.q, inputs.k));
  EXPECT_FALSE(at::equal(inputs.v.select(2, 0), inputs.v.select(2, 64)));
  const auto fewer =
      make_inputs(problem_of({40, 1, 8, 8}, at::kFloat, Masking::none), Protocol::forward, 1, InputDistribution::repeated);
  EXPECT_EQ(fewer.q.size(2), 40);
  EXPECT_EQ(fewer.k.size(2), 1);
}

// Queries and keys gather around the same centres, some of which have many more of them than others.
TEST(MakeInputs, ClusteredRowsGatherAroundSharedCentres) {
  const auto inputs = make_inputs(problem_of({4000, 4000, 64, 8}, at::kDouble, Masking::none, 1, 2), Protocol::forward, 1,
                                  InputDistribution::clustered);
  // Rows of one centre are 2·64·0.1² apart (squared), others 2·64.
  const auto q = inputs.q[0][0], k = inputs.k[0][0];
  const auto near = [](const at::Tensor& a, const at::Tensor& b) { return at::cdist(a, b).lt(4); };
  const auto of_query = near(q, k).sum(1).to(at::kDouble) / 4000;  // the share of the query's centre
  double harmonic = 0;
  for (int c = 1; c <= 16; ++c) harmonic += 1. / c;
  EXPECT_NEAR(of_query.max().item<double>(), 1 / harmonic, 0.03);
  EXPECT_NEAR(of_query.min().item<double>(), 1 / harmonic / 16, 0.01);
  // Every share as often as it is large: the mean over queries is the sum of squared shares.
  double squares = 0;
  for (int c = 1; c <= 16; ++c) squares += 1 / harmonic / c / harmonic / c;
  EXPECT_NEAR(of_query.mean().item<double>(), squares, 0.02);
  // A row is near its own centre or far from it, and heads have other centres.
  EXPECT_TRUE(at::equal(near(q, k), at::cdist(q, k).lt(8)));
  EXPECT_EQ(near(q, inputs.k[0][1]).sum().item<int64_t>(), 0);
}

TEST(MakeInputs, DistributionsByName) {
  EXPECT_EQ(parse_input_distribution("normal"), InputDistribution::normal);
  EXPECT_EQ(parse_input_distribution("clustered"), InputDistribution::clustered);
  EXPECT_EQ(parse_input_distribution("repeated"), InputDistribution::repeated);
  EXPECT_THROW(parse_input_distribution("Normal"), c10::ValueError);
}

TEST(MakeInputs, TypesAndShapes) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const auto inputs = make_inputs(problem_of({5, 7, 3, 2}, dtype, Masking::none), Protocol::forward_backward, 1);
    EXPECT_EQ(inputs.q.scalar_type(), dtype);
    EXPECT_EQ(inputs.q.sizes(), (at::IntArrayRef{2, 2, 5, 3}));
    EXPECT_EQ(inputs.k.sizes(), (at::IntArrayRef{2, 2, 7, 3}));
    EXPECT_EQ(inputs.v.sizes(), (at::IntArrayRef{2, 2, 7, 2}));
    EXPECT_EQ(inputs.output_gradient.sizes(), (at::IntArrayRef{2, 2, 5, 2}));
  }
  auto problem = problem_of({5, 7, 3, 2}, at::kFloat, Masking::none);
  problem.heads = 0;
  EXPECT_THROW(make_inputs(problem, Protocol::forward, 1), c10::ValueError);
}

TEST(Selection, RandomHoldsTheFirstAndTheLastRow) {
  const auto problem = problem_of({1000, 1000, 4, 4}, at::kFloat, Masking::none, 5, 6);
  const auto selection = Selection::random(problem, 64, 7);
  EXPECT_EQ(selection.batch.numel(), 2);
  EXPECT_EQ(selection.heads.numel(), 2);
  EXPECT_EQ(selection.count(), 64);
  EXPECT_EQ(selection.rows[0].item<int64_t>(), 0);
  EXPECT_EQ(selection.rows[-1].item<int64_t>(), 999);
  const auto distinct = std::get<0>(at::_unique(selection.rows));
  EXPECT_EQ(distinct.numel(), selection.rows.numel());
  EXPECT_TRUE(at::equal(Selection::random(problem, 64, 7).rows, selection.rows));
  EXPECT_FALSE(at::equal(Selection::random(problem, 64, 8).rows, selection.rows));
}

TEST(Selection, OfFewRows) {
  const auto one = Selection::random(problem_of({1, 1, 4, 4}, at::kFloat, Masking::none, 1, 1), 64, 7);
  EXPECT_EQ(one.count(), 1);
  EXPECT_EQ(one.rows[0].item<int64_t>(), 0);
  const auto few = Selection::random(problem_of({5, 5, 4, 4}, at::kFloat, Masking::none, 1, 1), 64, 7);
  EXPECT_TRUE(at::equal(few.rows, at::arange(5)));
  EXPECT_EQ(Selection::random(problem_of({5, 5, 4, 4}, at::kFloat, Masking::none, 0, 1), 64, 7).count(), 0);
}

TEST(RestrictGradient, IsZeroOutsideTheSelection) {
  const auto problem = problem_of({12, 12, 4, 6}, at::kFloat, Masking::none);
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const Selection some{at::tensor({1}, at::kLong), at::tensor({0}, at::kLong), at::tensor({3, 7}, at::kLong)};
  const auto gradient = restrict_gradient(inputs, some).output_gradient;
  auto expected = at::zeros_like(gradient);
  for (const int64_t row : {3, 7}) expected[1][0][row].copy_(inputs.output_gradient[1][0][row]);
  EXPECT_TRUE(at::equal(gradient, expected));
  EXPECT_FALSE(restrict_gradient(inputs_of(problem, Protocol::forward), some).output_gradient.defined());
}

// Its output does not depend on k, as that of a method that takes the queries for keys.
class IgnoresKeys : public AttentionMethod {
 public:
  Cost cost(const Problem&, Protocol) const override { return {}; }
  at::Tensor reference(const at::Tensor& q, const at::Tensor&, const at::Tensor& v, const Mask&,
                       const at::Tensor& rows) const override {
    return (q * v).index_select(2, rows);
  }

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor&, const at::Tensor& v, const Mask&) override { return q * v; }
};
const RegisterMethod ignores_keys{entry_of<IgnoresKeys>("test-ignores-keys", "q times v", "O(N)", "O(N)")};

TEST(Call, AGradientThatNoPathReachesIsZero) {
  const auto problem = problem_of({6, 6, 4, 4}, at::kFloat, Masking::none);
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const auto method = make_method("test-ignores-keys");
  auto results = call(*method, inputs, Protocol::forward_backward);
  EXPECT_TRUE(at::equal(results.k_gradient, at::zeros_like(inputs.k)));
  EXPECT_TRUE(at::equal(results.q_gradient, inputs.output_gradient * inputs.v.detach()));
  const auto everything = Selection::everything(problem);
  EXPECT_TRUE(compare(*method, inputs, results, Protocol::forward_backward, everything).within(1e-6));
  results.k_gradient = at::ones_like(inputs.k);
  EXPECT_FALSE(compare(*method, inputs, results, Protocol::forward_backward, everything).within(0.1));
}

TEST(Call, PrefillGivesTheOutputsAndTheState) {
  CausalMean mean(CausalMean::Flaw::none);
  const auto inputs = inputs_of(problem_of({6, 6, 4, 4}, at::kFloat, Masking::causal), Protocol::prefill);
  const auto results = call(mean, inputs, Protocol::prefill);
  ASSERT_TRUE(results.state);
  EXPECT_EQ(results.state->position(), 6);
  EXPECT_TRUE(compare(mean, inputs, results, Protocol::prefill, Selection::everything(results.state->problem())).within(1e-6));
  EXPECT_FALSE(call(mean, inputs, Protocol::forward).state);
  EXPECT_THROW(call(mean, inputs, Protocol::decode), c10::ValueError);
}

TEST(Decode, StepsAreComparedWithRowsOfTheReference) {
  CausalMean mean(CausalMean::Flaw::none);
  auto problem = problem_of({12, 12, 4, 4}, at::kFloat, Masking::causal);
  const auto inputs = inputs_of(problem, Protocol::decode);
  for (const int64_t position : {0, 1, 7, 11}) {
    auto results = decode_from(mean, inputs, position);
    EXPECT_EQ(results.output.size(2), 12 - position);
    EXPECT_EQ(results.state->position(), 12);
    auto steps = Selection::everything(problem);
    steps.rows = at::arange(position, 12);
    EXPECT_TRUE(compare(mean, inputs, results, Protocol::decode, steps).within(1e-6)) << position;
    const auto right = results.output;
    for (const int64_t step : {int64_t{0}, 11 - position}) {
      results.output = right.clone();
      results.output[1][1][step].mul_(1.01);
      EXPECT_FALSE(compare(mean, inputs, results, Protocol::decode, steps).within(1e-3)) << position << " " << step;
      results.output[1][1][step][0].fill_(std::nan(""));
      steps.rows = at::tensor({11 - step}, at::kLong);  // another step, or the same
      EXPECT_FALSE(compare(mean, inputs, results, Protocol::decode, steps).within(1e300));
      steps.rows = at::arange(position, 12);
    }
  }
}

// Its rows depend on how many follow, as where hashing depends on the length.
class MeanOfAll : public CausalMean {
 public:
  MeanOfAll() : CausalMean(Flaw::none) {}
  at::Tensor reference(const at::Tensor&, const at::Tensor&, const at::Tensor& v, const Mask&,
                       const at::Tensor& rows) const override {
    return v.mean(2, /*keepdim=*/true).expand({v.size(0), v.size(1), rows.numel(), v.size(3)});
  }
};

TEST(Decode, AStepIsTheLastRowOfItsOwnPrefix) {
  MeanOfAll method;
  const auto problem = problem_of({12, 12, 4, 4}, at::kFloat, Masking::causal);
  const auto inputs = inputs_of(problem, Protocol::decode);
  auto steps = Selection::everything(problem);
  steps.rows = at::arange(5, 12);
  EXPECT_TRUE(compare(method, inputs, decode_from(method, inputs, 5), Protocol::decode, steps).within(1e-6));
}

TEST(Assess, MeasuresTheDistanceOverTheSelection) {
  CausalMean half(CausalMean::Flaw::approximates), exact(CausalMean::Flaw::none);
  const auto problem = problem_of({12, 12, 4, 4}, at::kFloat, Masking::causal);
  const auto inputs = inputs_of(problem, Protocol::forward);
  auto results = call(half, inputs, Protocol::forward);
  results.output = results.output.clone();
  results.output[0][0][3].zero_();
  const auto error = [&](std::vector<int64_t> rows) {
    const Selection some{at::tensor({0}, at::kLong), at::tensor({0}, at::kLong), at::tensor(rows, at::kLong)};
    const auto quality = assess(half, inputs, results, Protocol::forward, some);
    EXPECT_EQ(quality.diagnostics.at(0).second, double(rows.back()));
    return quality.approximation_error.value();
  };
  EXPECT_NEAR(error({0, 5}), 0.5, 1e-6);
  EXPECT_NEAR(error({3}), 1, 1e-6);
  const auto twice = 2 * call(exact, inputs, Protocol::forward).output[0][0].to(at::kDouble);
  const auto three = twice[3].square().sum().item<double>(), five = twice[5].square().sum().item<double>();
  EXPECT_NEAR(error({3, 5}), std::sqrt((three + five / 4) / (three + five)), 1e-6);
  EXPECT_FALSE(assess(exact, inputs, results, Protocol::forward, Selection::everything(problem)).approximation_error);
}

TEST(Call, LeavesNoGradientBehind) {
  const auto inputs = inputs_of(problem_of({6, 6, 4, 4}, at::kFloat, Masking::none), Protocol::forward_backward);
  const auto results = call(*make_method("softmax"), inputs, Protocol::forward_backward);
  EXPECT_FALSE(results.output.requires_grad());
  for (const auto* input : {&inputs.q, &inputs.k, &inputs.v}) EXPECT_FALSE(input->grad().defined());
}

}  // namespace
}  // namespace attn
