// Tests of RAdam and of clipping. tests/python/experiments/test_experiments.py compares their numbers with PyTorch's.
#include "experiments/optim/radam.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include <sstream>

#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;

std::vector<at::Tensor> some_parameters() {
  return {at::randn({3, 4}).requires_grad_(), at::randn({5}).requires_grad_(), at::randn({}).requires_grad_()};
}

void set_gradients(const std::vector<at::Tensor>& parameters, int64_t step) {
  for (const auto& parameter : parameters) parameter.mutable_grad() = at::full_like(parameter, std::sin(double(step)) + 0.5);
}

// The state under its names, copied.
std::map<std::string, at::Tensor> state_of(const RAdam& optimizer) {
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : optimizer.named_state()) state[name] = tensor.clone();
  return state;
}

TEST(RAdam, MinimisesAQuadraticFunction) {
  const auto x = at::full({4}, 3.0).requires_grad_();
  RAdam optimizer({x}, {.learning_rate = 0.05, .weight_decay = 0});
  for (int step = 0; step < 500; ++step) {
    optimizer.zero_grad();
    (x - 1).square().sum().backward();
    optimizer.step();
  }
  EXPECT_TRUE(at::allclose(x, at::ones({4}), 0, 0.01)) << x;
}

TEST(RAdam, ItsFirstUpdatesAreMomentum) {
  // After one step m̂ is the gradient, so that θ becomes θ·(1 − lr·decay) − lr·g.
  const auto x = at::full({2}, 2.0, at::kDouble).requires_grad_();
  x.mutable_grad() = at::tensor({3.0, -500.0}, at::kDouble);
  RAdam optimizer({x}, {.learning_rate = 0.1, .weight_decay = 0.01});
  optimizer.step();
  EXPECT_TRUE(at::allclose(x, at::tensor({2 * 0.999 - 0.3, 2 * 0.999 + 50}, at::kDouble), 1e-12, 1e-12)) << x;
}

TEST(RAdam, LeavesParametersWithoutGradientAlone) {
  const auto x = at::ones({2}).requires_grad_(), y = at::ones({2}).requires_grad_();
  RAdam optimizer({x, y}, {.learning_rate = 0.1});
  for (int step = 0; step < 10; ++step) {
    y.mutable_grad() = at::ones({2});
    optimizer.step();
  }
  EXPECT_TRUE(at::equal(x, at::ones({2})));
  EXPECT_TRUE(at::equal(optimizer.named_state()[0].second, at::tensor({0, 10}, at::kLong)));
}

TEST(RAdam, ReturnsTheLossOfAClosure) {
  const auto x = at::ones({2}).requires_grad_();
  RAdam optimizer({x});
  EXPECT_FALSE(optimizer.step().defined());
  const auto loss = optimizer.step([&] {
    auto sum = x.sum();
    sum.backward();
    return sum;
  });
  EXPECT_EQ(loss.item<double>(), 2);
  EXPECT_TRUE(x.lt(1).all().item<bool>());
}

TEST(RAdam, GoesOnFromARestoredState) {
  const auto a = some_parameters();
  RAdam first(a);
  int64_t step = 0;
  for (; step < 7; ++step) set_gradients(a, step), first.step();
  std::vector<at::Tensor> b, c;
  for (const auto& parameter : a) {
    b.push_back(parameter.detach().clone().requires_grad_());
    c.push_back(parameter.detach().clone().requires_grad_());
  }
  RAdam second(b), third(c);
  second.restore(state_of(first));
  std::stringstream stream;
  torch::save(first, stream);
  torch::load(third, stream);
  for (; step < 12; ++step) {
    set_gradients(a, step), set_gradients(b, step), set_gradients(c, step);
    first.step(), second.step(), third.step();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i], b[i]));
    EXPECT_TRUE(at::equal(a[i], c[i]));
  }
}

TEST(RAdam, RefusesAStateThatDoesNotFit) {
  const auto parameters = some_parameters();
  RAdam optimizer(parameters);
  set_gradients(parameters, 0);
  optimizer.step();
  const auto before = state_of(optimizer);
  const auto message = [&](auto change) {
    auto state = before;
    for (auto& [name, tensor] : state) tensor = tensor + 1;
    change(state);
    auto text = message_of<c10::ValueError>([&] { optimizer.restore(state); });
    for (const auto& [name, tensor] : optimizer.named_state()) EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
    return text;
  };
  EXPECT_CONTAINS(message([](auto& state) { state.erase("exp_avg.1"); }), "no tensor 'exp_avg.1'");
  EXPECT_CONTAINS(message([](auto& state) { state["exp_avg.3"] = at::zeros({1}); }), "unknown tensor 'exp_avg.3'");
  EXPECT_CONTAINS(message([](auto& state) {
                    state["exp_avg_sq.0"] = at::zeros({4, 3});
                  }),
                  "'exp_avg_sq.0' is Float [4, 3], expected Float [3, 4]");
  EXPECT_CONTAINS(message([](auto& state) { state["steps"] = at::zeros({3}); }), "'steps' is Float [3], expected Long [3]");
}

TEST(RAdam, RefusesBadOptions) {
  const auto message = [](RAdamOptions options) {
    return message_of<c10::ValueError>([&] { RAdam(some_parameters(), options); });
  };
  EXPECT_CONTAINS(message({.learning_rate = -1}), "learning_rate = -1");
  EXPECT_CONTAINS(message({.beta1 = 1}), "beta1 = 1");
  EXPECT_CONTAINS(message({.beta2 = -0.5}), "beta2 = -0.5");
  EXPECT_CONTAINS(message({.epsilon = -1}), "epsilon = -1");
  EXPECT_CONTAINS(message({.weight_decay = -1}), "weight_decay = -1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { RAdam({at::ones({2}, at::kLong)}); }), "parameter 0 is Long");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { RAdam({at::ones({2}).requires_grad_() * 2}); }), "computed from others");
}

TEST(SetLearningRate, ReachesEveryOptimiser) {
  const auto x = at::zeros({1}, at::kDouble).requires_grad_();
  RAdam radam({x}, {.learning_rate = 1, .weight_decay = 0});
  set_learning_rate(radam, 0.25);
  x.mutable_grad() = at::ones({1}, at::kDouble);
  radam.step();
  EXPECT_DOUBLE_EQ(x.item<double>(), -0.25);
  torch::optim::Adam adam({x}, torch::optim::AdamOptions(1));
  set_learning_rate(adam, 0.5);
  adam.step();
  EXPECT_NEAR(x.item<double>(), -0.75, 1e-6);
}

TEST(ClipEachGradient, LimitsTheNormOfEachTensorAlone) {
  const auto large = at::zeros({2}).requires_grad_(), small = at::zeros({2}).requires_grad_(),
             none = at::zeros({2}).requires_grad_();
  large.mutable_grad() = at::tensor({30.0f, 40.0f});
  small.mutable_grad() = at::tensor({0.3f, 0.4f});
  const auto norms = clip_each_gradient({large, none, small}, 1);
  EXPECT_TRUE(at::allclose(norms, at::tensor({50.0f, 0.5f})));
  EXPECT_TRUE(at::allclose(large.grad(), at::tensor({0.6f, 0.8f})));
  EXPECT_TRUE(at::equal(small.grad(), at::tensor({0.3f, 0.4f})));
  EXPECT_FALSE(none.grad().defined());
  EXPECT_EQ(clip_each_gradient({none}, 1).numel(), 0);
}

TEST(ClipEachGradient, LeavesZerosAndShowsGradientsThatAreNotFinite) {
  const auto zero = at::zeros({2}).requires_grad_(), infinite = at::zeros({2}).requires_grad_();
  zero.mutable_grad() = at::zeros({2});
  infinite.mutable_grad() = at::tensor({1.0f, INFINITY});
  const auto norms = clip_each_gradient({zero, infinite}, 1);
  EXPECT_TRUE(at::equal(zero.grad(), at::zeros({2})));
  EXPECT_FALSE(norms[1].isfinite().item<bool>());
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { clip_each_gradient({zero}, 0); }), "max_norm = 0");
}

}  // namespace
}  // namespace experiments
