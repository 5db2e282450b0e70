// Compares the reference of recurrent attention with the recurrence composed of ATen operations, which autograd differentiates.
#include "attn/recurrent/reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <vector>

namespace attn {
namespace {

constexpr int64_t kHeads = 3, kPositions = 270, kKeyDim = 5, kValueDim = 7;  // more positions than two segments of the reference

struct Form {
  std::string name;
  bool delta;
  int64_t decays;  // of a position: 0, 1, or one for each feature
  bool has_beta;
};

std::string name_of(const testing::TestParamInfo<Form>& form) { return form.param.name; }

class RecurrentReference : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override { at::manual_seed(1); }

  Inputs inputs() const {
    const auto drawn = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
    Inputs all{drawn({2, kHeads, kPositions, kKeyDim}) * 0.4, drawn({2, kHeads, kPositions, kKeyDim}) * 0.4,
               drawn({2, kHeads, kPositions, kValueDim}) + 1};
    all.mask.causal = true;
    const auto& form = GetParam();
    if (form.decays == 1) all.g = -drawn({2, kHeads, kPositions}).abs() / 8;
    if (form.decays > 1) all.g = -drawn({2, kHeads, kPositions, kKeyDim}).abs() / 8;
    if (form.has_beta) all.beta = at::rand({2, kHeads, kPositions}, at::kDouble);
    return all;
  }

  // The outputs by the definition.
  static at::Tensor by_operations(const Inputs& all, bool delta) {
    auto state = at::zeros({2, kHeads, kKeyDim, kValueDim}, at::kDouble);
    std::vector<at::Tensor> outputs;
    for (int64_t t = 0; t < kPositions; ++t) {
      const auto row = [&](const at::Tensor& x) { return x.select(2, t); };
      if (all.g.defined())
        state = state * (all.g.dim() == 4 ? row(all.g).unsqueeze(-1) : row(all.g).unsqueeze(-1).unsqueeze(-1)).exp();
      auto change = row(all.v);
      if (delta) change = change - at::einsum("bhk,bhkm->bhm", {row(all.k), state});
      if (all.beta.defined()) change = row(all.beta).unsqueeze(-1) * change;
      state = state + row(all.k).unsqueeze(-1) * change.unsqueeze(-2);
      outputs.push_back(at::einsum("bhk,bhkm->bhm", {row(all.q), state}));
    }
    return at::stack(outputs, 2);
  }

  // The output, and the gradients of those inputs that are there, for one gradient of the output.
  template <class Function>
  static std::vector<at::Tensor> differentiated(Inputs all, const Function& function) {
    std::vector<at::Tensor> leaves;
    for (auto* x : {&all.q, &all.k, &all.v, &all.g, &all.beta})
      if (x->defined()) leaves.push_back(*x = x->detach().clone().set_requires_grad(true));
    const at::AutoGradMode enabled(true);
    const at::Tensor output = function(all);
    at::manual_seed(2);
    auto results = torch::autograd::grad({output}, leaves, {at::randn_like(output)});
    results.insert(results.begin(), output.detach());
    return results;
  }

  static void expect_same(const std::vector<at::Tensor>& ones, const std::vector<at::Tensor>& others) {
    ASSERT_EQ(ones.size(), others.size());
    for (size_t i = 0; i < ones.size(); ++i)
      EXPECT_TRUE(at::allclose(ones[i], others[i], /*rtol=*/1e-10, /*atol=*/1e-11)) << "result " << i;
  }
};
INSTANTIATE_TEST_SUITE_P(Forms, RecurrentReference,
                         testing::Values(Form{"linear", false, 0, false}, Form{"decay", false, 1, false},
                                         Form{"decays", false, kKeyDim, false}, Form{"delta", true, 0, true},
                                         Form{"gated_delta", true, 1, true}, Form{"gated_deltas", true, kKeyDim, true}),
                         name_of);

TEST_P(RecurrentReference, HasTheOutputsAndGradientsOfTheDefinition) {
  const auto all = inputs();
  const auto delta = GetParam().delta;
  const auto rows = at::arange(kPositions);
  expect_same(differentiated(all,
                             [&](const Inputs& x) {
                               return reference::recurrent(x, rows, {delta, 1, false});
                             }),
              differentiated(all, [&](const Inputs& x) { return by_operations(x, delta); }));
}

TEST_P(RecurrentReference, ComputesTheRowsThatItIsAskedFor) {
  const auto all = inputs();
  const reference::RecurrentDefinition definition{GetParam().delta, 0.5, true};
  const auto every = reference::recurrent(all, at::arange(kPositions), definition);
  const auto rows = at::tensor({130, 4, 131}, at::kLong);
  EXPECT_TRUE(at::equal(reference::recurrent(all, rows, definition), every.index_select(2, rows)));
}

TEST_P(RecurrentReference, LetsNothingPassADecayOfMinusInfinity) {
  auto all = inputs();
  if (!all.g.defined()) GTEST_SKIP() << "has no decay";
  all.g.select(2, 140).fill_(-std::numeric_limits<double>::infinity());
  const auto rows = at::arange(kPositions);
  const auto results = differentiated(all, [&](const Inputs& x) {
    return reference::recurrent(x, rows, {GetParam().delta, 1, false});
  });
  for (const auto& result : results) EXPECT_TRUE(at::isfinite(result).all().item<bool>());
  EXPECT_TRUE((results[4].select(2, 140) == 0).all().item<bool>()) << "the gradient of the decay";
  auto other = all;
  for (auto* x : {&other.k, &other.v}) *x = x->clone();
  other.v.narrow(2, 0, 140).add_(1);
  EXPECT_TRUE(at::equal(reference::recurrent(other, rows, {GetParam().delta, 1, false}).narrow(2, 140, kPositions - 140),
                        results[0].narrow(2, 140, kPositions - 140)));
}

}  // namespace
}  // namespace attn
