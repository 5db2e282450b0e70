// Tests of drawing inputs: one seed always gives the same numbers, and they have the distribution that was asked for.
#include "harness/worker/inputs/inputs.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/support/causal_mean.h"
#include "tests/support/errors_of.h"
#include "tests/support/gated.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::InputDistribution;
using attnbench::parse_input_distribution;

TEST(MakeInputs, DependOnTheSeedAndNotOnTheNumberOfThreads) {
  // The tensors are large enough that each is drawn by several random generators.
  const auto problem = problem_of({5000, 5000, 64, 64}, at::kFloat, Masking::key_lengths, 2, 4);
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = make_inputs(problem, Protocol::forward_backward, 3);
  at::set_num_threads(2);
  const auto two = make_inputs(problem, Protocol::forward_backward, 3),
             other = make_inputs(problem, Protocol::forward_backward, 4);
  at::set_num_threads(threads);
  for (const auto member : std::initializer_list<at::Tensor CallInputs::*>{&CallInputs::q, &CallInputs::k, &CallInputs::v,
                                                                           &CallInputs::grad_output}) {
    EXPECT_TRUE(at::equal(one.*member, two.*member));
    EXPECT_FALSE(at::equal(one.*member, other.*member));
  }
  EXPECT_TRUE(at::equal(*one.mask.key_lengths, *two.mask.key_lengths));
}

TEST(MakeInputs, EntriesAreIndependentStandardNormals) {
  const auto problem = problem_of({2048, 2048, 64, 64}, at::kFloat, Masking::none, 2, 8);
  const auto inputs = make_inputs(problem, Protocol::forward_backward, 1);
  const at::Tensor* const all[] = {&inputs.q, &inputs.k, &inputs.v, &inputs.grad_output};
  for (size_t i = 0; i < 4; ++i) {
    const auto x = all[i]->detach().view(-1);
    EXPECT_NEAR(x.mean().item<double>(), 0, 5e-3);
    EXPECT_NEAR(x.std().item<double>(), 1, 5e-3);
    // Neither two tensors nor the two halves of one tensor are correlated.
    for (size_t j = 0; j < i; ++j) EXPECT_NEAR((x * all[j]->detach().view(-1)).mean().item<double>(), 0, 5e-3);
    const auto half = x.numel() / 2;
    EXPECT_NEAR((x.slice(0, 0, half) * x.slice(0, half)).mean().item<double>(), 0, 5e-3);
  }
  EXPECT_TRUE(inputs.q.requires_grad() && inputs.k.requires_grad() && inputs.v.requires_grad());
  const auto forward = make_inputs(problem, Protocol::forward, 1);
  EXPECT_FALSE(forward.q.requires_grad());
  EXPECT_FALSE(forward.grad_output.defined());
  EXPECT_TRUE(at::equal(forward.q, inputs.q));
}

TEST(MakeInputs, DrawTheFurtherTensorsOfAMethod) {
  const Gated gated;
  const auto problem = problem_of({2048, 2048, 8, 8}, at::kBFloat16, Masking::causal, 2, 8);
  const auto plain = make_inputs(problem, Protocol::forward_backward, 1),
             inputs = make_inputs(gated, problem, Protocol::forward_backward, 1),
             other = make_inputs(gated, problem, Protocol::forward_backward, 2);
  EXPECT_FALSE(plain.g.defined());
  EXPECT_TRUE(at::equal(plain.q, inputs.q) && at::equal(plain.k, inputs.k) && at::equal(plain.v, inputs.v));
  EXPECT_TRUE(at::equal(plain.grad_output, inputs.grad_output));
  ASSERT_TRUE(inputs.g.defined());
  EXPECT_EQ(inputs.g.sizes(), (at::IntArrayRef{2, 8, 2048}));
  EXPECT_EQ(inputs.g.scalar_type(), at::kFloat);
  EXPECT_TRUE(inputs.g.requires_grad());
  EXPECT_LT(inputs.g.max().item<double>(), 0);
  EXPECT_NEAR(inputs.g.mean().item<double>(), -0.0504, 1e-3);
  EXPECT_FALSE(at::equal(inputs.g, other.g));
  const auto x = inputs.g.detach().flatten() - inputs.g.detach().mean();
  const auto correlation = (x * inputs.q.detach().to(at::kFloat).select(3, 0).flatten()).mean().item<double>();
  EXPECT_NEAR(correlation, 0, 1e-3) << "g has random numbers of its own";
}

constexpr InputDistribution kDistributions[] = {InputDistribution::normal, InputDistribution::clustered,
                                                InputDistribution::repeated};

TEST(MakeInputs, NoDistributionDependsOnTheNumberOfThreads) {
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
    EXPECT_TRUE(at::equal(one.grad_output, normal.grad_output));
    EXPECT_TRUE(one.q.requires_grad());
  }
}

TEST(MakeInputs, RepeatedInputsRepeatABlockOf64Rows) {
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

TEST(MakeInputs, HardInputsHaveMeansScalesAndOutliers) {
  const auto problem = problem_of({2000, 2000, 32, 32}, at::kDouble, Masking::none, 2, 8);
  const auto inputs_from = [&](InputDistribution distribution) {
    return make_inputs(problem, Protocol::forward_backward, 1, distribution);
  };
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(inputs_from(InputDistribution::normal).ill_conditioned);

  const auto offset = inputs_from(InputDistribution::offset);
  EXPECT_TRUE(offset.ill_conditioned);
  const auto means = [](const at::Tensor& x) { return x.mean(2); };
  const auto first_heads = means(offset.q).narrow(1, 0, 7), last_head = means(offset.q).select(1, 7);
  EXPECT_TRUE(at::allclose(first_heads.abs(), at::ones({2, 7, 32}, at::kDouble), 0, 0.15));
  EXPECT_TRUE(at::allclose(first_heads, means(offset.k).narrow(1, 0, 7), 0, 0.2));
  EXPECT_TRUE(at::allclose(last_head, means(offset.k).select(1, 7) - 18, 0, 0.2));
  EXPECT_NEAR(means(offset.v).abs().max().item<double>(), 100, 5);
  EXPECT_NEAR(means(offset.v).mean().item<double>(), 0, 10);
  EXPECT_NEAR(means(offset.grad_output).abs().max().item<double>(), 1, 0.15);
  EXPECT_NEAR(offset.v.std(2).mean().item<double>(), 1, 0.05);

  const auto scaled = inputs_from(InputDistribution::scaled);
  const auto scales = [](const at::Tensor& x) { return x.flatten(2).std(2).log10(); };
  for (const auto& [x, max] : {std::pair{scaled.q, 1.5}, {scaled.k, 1.5}, {scaled.v, 3.0}, {scaled.grad_output, 3.0}}) {
    EXPECT_GE(scales(x).min().item<double>(), -3.01);
    EXPECT_LE(scales(x).max().item<double>(), max);
    EXPECT_GT(scales(x).max().item<double>() - scales(x).min().item<double>(), 2);
  }
  EXPECT_FALSE(at::allclose(scales(scaled.q), scales(scaled.k), 0, 0.1));

  const auto outliers = inputs_from(InputDistribution::outliers);
  for (const auto* x : {&outliers.q, &outliers.k, &outliers.v, &outliers.grad_output}) {
    const auto of_columns = x->slice(2, 50, 100).reshape({-1, 32}).std(0);
    EXPECT_EQ((of_columns > 15).sum().item<int64_t>(), 2);
    EXPECT_NEAR(x->abs().median().item<double>(), 0.7, 0.1);
  }
}

// Queries and keys lie around the same centres, some of which have many more rows than others.
TEST(MakeInputs, ClusteredRowsGatherAroundSharedCentres) {
  const auto inputs = make_inputs(problem_of({4000, 4000, 64, 8}, at::kDouble, Masking::none, 1, 2), Protocol::forward, 1,
                                  InputDistribution::clustered);
  // The squared distance of two rows is about 2·64·0.1² around one centre and 2·64 around two.
  const auto q = inputs.q[0][0], k = inputs.k[0][0];
  const auto near = [](const at::Tensor& a, const at::Tensor& b) { return at::cdist(a, b).lt(4); };
  const auto of_query = near(q, k).sum(1).to(at::kDouble) / 4000;  // the share of rows around the query's centre
  double harmonic = 0;
  for (int c = 1; c <= 16; ++c) harmonic += 1. / c;
  EXPECT_NEAR(of_query.max().item<double>(), 1 / harmonic, 0.03);
  EXPECT_NEAR(of_query.min().item<double>(), 1 / harmonic / 16, 0.01);
  // A centre's share is also the probability that a query lies around it: the mean over queries is the sum of squared shares.
  double squares = 0;
  for (int c = 1; c <= 16; ++c) squares += 1 / harmonic / c / harmonic / c;
  EXPECT_NEAR(of_query.mean().item<double>(), squares, 0.02);
  // No distance lies between those within a cluster and those between clusters, and every head has centres of its own.
  EXPECT_TRUE(at::equal(near(q, k), at::cdist(q, k).lt(8)));
  EXPECT_EQ(near(q, inputs.k[0][1]).sum().item<int64_t>(), 0);
}

TEST(MakeInputs, DistributionsAreParsedByName) {
  EXPECT_EQ(parse_input_distribution("normal"), InputDistribution::normal);
  EXPECT_EQ(parse_input_distribution("clustered"), InputDistribution::clustered);
  EXPECT_EQ(parse_input_distribution("repeated"), InputDistribution::repeated);
  EXPECT_EQ(parse_input_distribution("offset"), InputDistribution::offset);
  EXPECT_EQ(parse_input_distribution("scaled"), InputDistribution::scaled);
  EXPECT_EQ(parse_input_distribution("outliers"), InputDistribution::outliers);
  EXPECT_THROW(parse_input_distribution("Normal"), c10::ValueError);
}

TEST(MakeInputs, HaveTheDtypeAndShapesOfTheProblem) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const auto inputs = make_inputs(problem_of({5, 7, 3, 2}, dtype, Masking::none), Protocol::forward_backward, 1);
    EXPECT_EQ(inputs.q.scalar_type(), dtype);
    EXPECT_EQ(inputs.q.sizes(), (at::IntArrayRef{2, 2, 5, 3}));
    EXPECT_EQ(inputs.k.sizes(), (at::IntArrayRef{2, 2, 7, 3}));
    EXPECT_EQ(inputs.v.sizes(), (at::IntArrayRef{2, 2, 7, 2}));
    EXPECT_EQ(inputs.grad_output.sizes(), (at::IntArrayRef{2, 2, 5, 2}));
  }
  auto problem = problem_of({5, 7, 3, 2}, at::kFloat, Masking::none);
  problem.heads = 0;
  EXPECT_THROW(make_inputs(problem, Protocol::forward, 1), c10::ValueError);
}

}  // namespace
}  // namespace attn
