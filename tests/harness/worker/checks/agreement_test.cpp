// Tests of the agreement check that every timed case must pass: it finds wrong results, and accepts right ones.
#include "harness/worker/checks/agreement.h"

#include <gtest/gtest.h>

#include "tests/support/causal_mean.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::Agreement;

class AgreementTest : public testing::Test {
 protected:
  const Problem problem_ = problem_of({12, 12, 4, 6}, at::kFloat, Masking::none);
  const CallInputs inputs_ = inputs_of(problem_, Protocol::forward_backward);
  const std::shared_ptr<AttentionMethod> method_ = make_method("softmax");
  Results results_ = call(*method_, inputs_, Protocol::forward_backward);

  Agreement agreement() const { return compare(*method_, inputs_, results_, Selection::everything(problem_)); }
};

// The result that Agreement::worst names like this.
template <class AnyResults>
auto& named(AnyResults& results, const std::string& name) {
  return name == "output" ? results.output : results.gradients.*find_input(name.substr(name.size() - 1)).member;
}

TEST_F(AgreementTest, RightResultsAgree) {
  const auto found = agreement();
  EXPECT_TRUE(found.within(1e-5));
  EXPECT_GT(found.max_rel_error, 0);
  EXPECT_FALSE(found.within(found.max_rel_error / 2));
}

TEST_F(AgreementTest, OneWrongEntryOfAnyTensorIsFound) {
  const auto correct = results_;
  for (const std::string name : {"output", "gradient of q", "gradient of k", "gradient of v"}) {
    const auto& right = named(correct, name);
    for (const int64_t entry : {int64_t{0}, right.numel() - 1}) {
      results_ = correct;
      auto& wrong = named(results_, name);
      wrong = right.clone(at::MemoryFormat::Contiguous);
      const auto scale = right.abs().max().item<double>();
      wrong.view(-1)[entry].add_(0.01 * scale);
      const auto found = agreement();
      EXPECT_FALSE(found.within(1e-3)) << name;
      EXPECT_TRUE(found.finite);
      EXPECT_EQ(found.worst, name);
      EXPECT_NEAR(found.max_abs_error, 0.01 * scale, 1e-5 * scale);
      EXPECT_LE(found.max_rel_error, 0.0101);
    }
  }
}

TEST_F(AgreementTest, ScaledAndPermutedResultsAreFound) {
  const auto correct = results_;
  results_.output = correct.output * 1.01;
  EXPECT_FALSE(agreement().within(5e-3));
  results_.output = correct.output.flip(2);
  EXPECT_FALSE(agreement().within(0.1));
  results_.output = correct.output.flip(1);
  EXPECT_FALSE(agreement().within(0.1));
  results_ = correct;
  results_.gradients.v = correct.gradients.v.flip(0);
  EXPECT_FALSE(agreement().within(0.1));
}

TEST_F(AgreementTest, OneNanOrInfinityIsFound) {
  const auto correct = results_;
  for (const double value : {std::nan(""), double(INFINITY), -double(INFINITY)}) {
    for (const std::string name : {"output", "gradient of q", "gradient of k", "gradient of v"}) {
      results_ = correct;
      auto& wrong = named(results_, name);
      wrong = wrong.clone(at::MemoryFormat::Contiguous);
      wrong.view(-1)[5].fill_(value);
      EXPECT_FALSE(agreement().within(1e300));
    }
  }
}

// Rows outside the selection are not compared, but a NaN there is found.
TEST_F(AgreementTest, NanOutsideTheSelectionIsFound) {
  const Selection first{at::tensor({0}, at::kLong), at::tensor({0}, at::kLong), at::tensor({0, 11}, at::kLong), 2, 2};
  const auto inputs = restrict_gradient(inputs_, first);
  auto results = call(*method_, inputs, Protocol::forward_backward);
  EXPECT_TRUE(compare(*method_, inputs, results, first).within(1e-5));
  results.output = results.output.clone();
  results.output[1][1][5][0].fill_(1e6);
  EXPECT_TRUE(compare(*method_, inputs, results, first).within(1e-5));
  results.output[1][1][5][0].fill_(std::nan(""));
  EXPECT_FALSE(compare(*method_, inputs, results, first).within(1e300));
}

TEST_F(AgreementTest, OnlyTheSelectedRowsAreCompared) {
  const Selection some{at::tensor({1}, at::kLong), at::tensor({0}, at::kLong), at::tensor({3, 7}, at::kLong), 2, 2};
  const auto inputs = restrict_gradient(inputs_, some);
  const auto correct = call(*method_, inputs, Protocol::forward_backward);
  auto results = correct;
  for (const int64_t row : {3, 7, 4}) {
    results.output = correct.output.clone();
    results.output[1][0][row].mul_(1.5);
    EXPECT_EQ(compare(*method_, inputs, results, some).within(1e-3), row == 4) << row;
  }
}

// With one key the output of softmax does not depend on q, so the gradient of q that a method returns is rounding error. It must
// not be compared relative to itself.
TEST_F(AgreementTest, AVanishingGradientIsComparedOnTheScaleOfTheOthers) {
  for (const auto* name : {"softmax", "sdpa"}) {
    const auto method = make_method(name);
    const auto problem = problem_of({9, 1, 16, 16}, at::kBFloat16, Masking::none);
    const auto inputs = inputs_of(problem, Protocol::forward_backward);
    auto results = call(*method, inputs, Protocol::forward_backward);
    const auto everything = Selection::everything(problem);
    EXPECT_TRUE(compare(*method, inputs, results, everything).within(error_tolerance(at::kBFloat16)));
    results.gradients.q = at::full_like(results.gradients.q, 0.1 * results.gradients.v.abs().max().item<double>());
    EXPECT_FALSE(compare(*method, inputs, results, everything).within(error_tolerance(at::kBFloat16)));
  }
}

// A wrong row whose entries are small beside those of other rows does not change max_rel_error much.
TEST_F(AgreementTest, AWrongRowOfSmallEntriesIsInTheRowError) {
  const auto correct = results_;
  const auto row = correct.gradients.q.abs().amax(-1).flatten().argmin().item<int64_t>();
  results_.gradients.q = correct.gradients.q.clone(at::MemoryFormat::Contiguous);
  results_.gradients.q.view({-1, 4})[row].mul_(1.5);
  EXPECT_LT(agreement().max_rel_error, 0.1);
  EXPECT_NEAR(agreement().max_row_error, 0.5, 1e-3);
  results_ = correct;
  EXPECT_LT(agreement().max_row_error, 1e-4);
}

// Logits of some thousands are rounded by more than the tolerance, which the inputs explain. A wrong result is found all the
// same.
TEST_F(AgreementTest, IllConditionedInputsExplainAnError) {
  auto inputs = inputs_;
  inputs.q = (inputs_.q.detach() * 3).set_requires_grad(true);
  inputs.k = (inputs_.k.detach() + 1000).set_requires_grad(true);
  auto results = call(*method_, inputs, Protocol::forward_backward);
  const auto of = [&](bool ill_conditioned) {
    inputs.ill_conditioned = ill_conditioned;
    return compare(*method_, inputs, results, Selection::everything(problem_));
  };
  EXPECT_FALSE(of(false).within(1e-5));
  EXPECT_EQ(of(false).excess_error, of(false).max_rel_error);
  EXPECT_TRUE(of(true).within(1e-5)) << of(true).excess_error;
  EXPECT_EQ(of(true).max_rel_error, of(false).max_rel_error);
  results.gradients.v = results.gradients.v * 1.5;
  EXPECT_FALSE(of(true).within(0.1));
  EXPECT_EQ(of(true).worst, "gradient of v");
}

TEST(Agreement, IncludeTakesTheLargerErrors) {
  Agreement small{1, 1e-6, "output", true}, large{0.5, 1e-3, "gradient of k", true},
      nan{std::nan(""), std::nan(""), "gradient of v", false};
  auto both = small;
  both.include(large);
  EXPECT_EQ(both.max_abs_error, 1);
  EXPECT_EQ(both.max_rel_error, 1e-3);
  EXPECT_EQ(both.worst, "gradient of k");
  both = large;
  both.include(small);
  EXPECT_EQ(both.max_rel_error, 1e-3);
  EXPECT_EQ(both.worst, "gradient of k");
  both = nan;
  both.include(small);
  EXPECT_FALSE(both.within(1e300));
  both = small;
  both.include(nan);
  EXPECT_FALSE(both.within(1e300));
}

TEST(Agreement, TolerancesGrowAsPrecisionFalls) {
  EXPECT_LT(error_tolerance(at::kDouble), error_tolerance(at::kFloat));
  EXPECT_LT(error_tolerance(at::kFloat), error_tolerance(at::kHalf));
  EXPECT_LT(error_tolerance(at::kHalf), error_tolerance(at::kBFloat16));
  EXPECT_LT(error_tolerance(at::kBFloat16), 0.1);
  EXPECT_THROW(error_tolerance(at::kLong), c10::ValueError);
}

TEST(Decode, StepsAreComparedWithTheRowsOfTheReference) {
  CausalMean mean(CausalMean::Flaw::none);
  auto problem = problem_of({12, 12, 4, 4}, at::kFloat, Masking::causal);
  const auto inputs = inputs_of(problem, Protocol::decode);
  for (const int64_t position : {0, 1, 7, 11}) {
    auto results = decode_from(mean, inputs, position);
    EXPECT_EQ(results.output.size(2), 12 - position);
    EXPECT_EQ(results.state->position(), 12);
    auto steps = Selection::everything(problem);
    steps.rows = at::arange(position, 12);
    EXPECT_TRUE(compare(mean, inputs, results, steps).within(1e-6)) << position;
    const auto right = results.output;
    for (const int64_t step : {int64_t{0}, 11 - position}) {
      results.output = right.clone();
      results.output[1][1][step].mul_(1.01);
      EXPECT_FALSE(compare(mean, inputs, results, steps).within(1e-3)) << position << " " << step;
      results.output[1][1][step][0].fill_(std::nan(""));
      steps.rows = at::tensor({11 - step}, at::kLong);  // not the step with the NaN, unless there is only one
      EXPECT_FALSE(compare(mean, inputs, results, steps).within(1e300));
      steps.rows = at::arange(position, 12);
    }
  }
}

// A method whose reference of a row depends on the tokens after it, as the buckets of LSH attention depend on the length.
class MeanOfAll : public CausalMean {
 public:
  MeanOfAll() : CausalMean(Flaw::none) {}
  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    return inputs.v.mean(2, /*keepdim=*/true).expand({-1, -1, rows.numel(), -1});
  }
};

TEST(Decode, AStepIsComparedWithTheLastRowOfTheReferenceOfItsPrefix) {
  MeanOfAll method;
  const auto problem = problem_of({12, 12, 4, 4}, at::kFloat, Masking::causal);
  const auto inputs = inputs_of(problem, Protocol::decode);
  auto steps = Selection::everything(problem);
  steps.rows = at::arange(5, 12);
  EXPECT_TRUE(compare(method, inputs, decode_from(method, inputs, 5), steps).within(1e-6));
}

}  // namespace
}  // namespace attn
