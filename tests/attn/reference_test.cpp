// Compares the float64 references with attention in scalar loops, which share no code with them.
#include "attn/reference.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attn/linear/reference.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

constexpr double kEpsilon = 1e-6;

enum class Kernel { softmax, linear };

double phi(double x) { return x > 0 ? x + 1 : std::exp(x); }

// Attention by its definition, one number at a time.
at::Tensor by_loops(const Inputs& inputs, Kernel kernel) {
  const auto q = inputs.q.accessor<double, 4>(), k = inputs.k.accessor<double, 4>(), v = inputs.v.accessor<double, 4>();
  const auto output = at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, at::kDouble);
  auto out = output.accessor<double, 4>();
  for (int64_t b = 0; b < q.size(0); ++b) {
    const auto keys = inputs.mask.key_lengths ? (*inputs.mask.key_lengths)[b].item<int64_t>() : k.size(2);
    for (int64_t h = 0; h < q.size(1); ++h) {
      for (int64_t i = 0; i < q.size(2); ++i) {
        double total = kernel == Kernel::linear ? kEpsilon : 0;
        for (int64_t j = 0; j < keys; ++j) {
          if (inputs.mask.causal && j > i) continue;
          double weight = 0;
          for (int64_t d = 0; d < q.size(3); ++d)
            weight += kernel == Kernel::linear ? phi(q[b][h][i][d]) * phi(k[b][h][j][d]) : q[b][h][i][d] * k[b][h][j][d];
          if (kernel == Kernel::softmax) weight = std::exp(weight / std::sqrt(double(q.size(3))));
          total += weight;
          for (int64_t m = 0; m < v.size(3); ++m) out[b][h][i][m] += weight * v[b][h][j][m];
        }
        for (int64_t m = 0; m < v.size(3); ++m) out[b][h][i][m] /= total > 0 ? total : 1;
      }
    }
  }
  return output;
}

class Reference : public testing::TestWithParam<Masking> {
 protected:
  std::vector<Inputs> small_inputs() const {
    std::vector<Inputs> all;
    for (const auto& shape : {Shape{1, 1, 1, 1}, Shape{5, 5, 3, 2}, Shape{13, 13, 4, 7}, Shape{6, 9, 3, 3}, Shape{9, 6, 2, 5}}) {
      if (is_causal(GetParam()) && shape.query_len != shape.key_len) continue;
      all.push_back(inputs_of(problem_of(shape, at::kDouble, GetParam(), 3, 2), Protocol::forward));
    }
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Masks, Reference, testing::ValuesIn(kMaskings),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(Reference, SoftmaxAgreesWithPlainLoops) {
  for (const auto& inputs : small_inputs()) {
    const auto expected = by_loops(inputs, Kernel::softmax);
    EXPECT_LT(largest_difference(reference::softmax(inputs, at::arange(inputs.q.size(2))), expected), 1e-13);
  }
}

TEST_P(Reference, LinearAgreesWithPlainLoops) {
  for (const auto& inputs : small_inputs()) {
    const auto expected = by_loops(inputs, Kernel::linear);
    const auto found = reference::linear(inputs, at::arange(inputs.q.size(2)), *make_feature_map("elu"), kEpsilon);
    EXPECT_LT(largest_difference(found, expected), 1e-13);
  }
}

TEST_P(Reference, ReferencesOfMethodsAgreeWithPlainLoops) {
  for (const auto& [name, kernel] : {std::pair{"softmax", Kernel::softmax},
                                     {"sdpa", Kernel::softmax},
                                     {"linear", Kernel::linear},
                                     {"linear-chunked:chunk=3", Kernel::linear},
                                     {"linear-einsum", Kernel::linear}}) {
    const auto method = make_method(name);
    for (const auto& inputs : small_inputs()) {
      const auto expected = by_loops(inputs, kernel);
      EXPECT_LT(largest_difference(method->reference(inputs, at::arange(inputs.q.size(2))), expected), 1e-13) << name;
      // The method itself is also compared with the loops directly.
      if (inputs.mask.causal && !method->capabilities().causal) continue;
      EXPECT_LT(largest_difference(method->forward(inputs), expected), 1e-12) << name;
    }
  }
}

// The requested rows may be in any order and may repeat.
TEST_P(Reference, TheRequestedRowsAreReturned) {
  const auto inputs = inputs_of(problem_of({13, 13, 4, 7}, at::kDouble, GetParam(), 3, 2), Protocol::forward);
  const auto rows = at::tensor({12, 0, 5, 5}, at::kLong);
  for (const auto* name : {"softmax", "linear"}) {
    const auto method = make_method(name);
    const auto all = method->reference(inputs, at::arange(13));
    EXPECT_LT(largest_difference(method->reference(inputs, rows), all.index_select(2, rows)), 1e-14) << name;
  }
}

TEST_P(Reference, GradientsAgreeWithFiniteDifferences) {
  constexpr double h = 1e-6;
  for (const auto& [name, kernel] : {std::pair{"softmax", Kernel::softmax}, {"linear", Kernel::linear}}) {
    const auto inputs = inputs_of(problem_of({4, 4, 3, 2}, at::kDouble, GetParam(), 2, 1), Protocol::forward_backward);
    const auto results = make_method(name)->reference(inputs, at::arange(4));
    (results * inputs.grad_output).sum().backward();
    const at::NoGradGuard no_grad;
    for (const auto member : {&Inputs::q, &Inputs::k, &Inputs::v}) {
      auto moved = inputs;
      moved.*member = (inputs.*member).detach().clone();
      const auto flat = (moved.*member).view(-1), gradient = (inputs.*member).grad().view(-1);
      for (int64_t e = 0; e < flat.numel(); ++e) {
        const auto loss = [&, kernel = kernel] { return (by_loops(moved, kernel) * inputs.grad_output).sum().item<double>(); };
        flat[e].add_(h);
        const auto above = loss();
        flat[e].sub_(2 * h);
        const auto below = loss();
        flat[e].add_(h);
        ASSERT_NEAR(gradient[e].item<double>(), (above - below) / (2 * h), 1e-7) << name;
      }
    }
  }
}

// The exp of these logits overflows.
TEST(ReferenceSoftmax, LargeLogitsDoNotOverflow) {
  auto inputs = inputs_of(problem_of({5, 5, 3, 2}, at::kDouble, Masking::causal, 1, 1), Protocol::forward);
  inputs.q.mul_(1e3);
  inputs.k.mul_(1e3);
  const auto output = reference::softmax(inputs, at::arange(5));
  EXPECT_TRUE(all_finite(output));
  const auto logits =
      at::matmul(inputs.q, inputs.k.transpose(2, 3)).masked_fill(*inputs.mask.hidden_pairs(5, 5, at::kCPU), -INFINITY);
  EXPECT_LT(largest_difference(output, at::matmul(at::one_hot(logits.argmax(-1), 5).to(at::kDouble), inputs.v)), 1e-12);
}

}  // namespace
}  // namespace attn
