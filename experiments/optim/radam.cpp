// The update of RAdam, and what its state holds in a checkpoint.
#include "experiments/optim/radam.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace experiments {
namespace {

// What LibTorch's interface of optimisers needs to know of the options.
class LearningRate : public torch::optim::OptimizerCloneableOptions<LearningRate> {
 public:
  explicit LearningRate(double rate) : rate_(rate) {}
  double get_lr() const override { return rate_; }
  void set_lr(const double rate) override { rate_ = rate; }

 private:
  double rate_;
};

RAdamOptions checked(const RAdamOptions& options) {
  const auto check = [](const char* name, double value, bool valid, const char* expected) {
    TORCH_CHECK_VALUE(valid, "RAdam: ", name, " = ", value, ", expected ", expected);
  };
  check("learning_rate", options.learning_rate, options.learning_rate >= 0, "at least 0");
  check("beta1", options.beta1, options.beta1 >= 0 && options.beta1 < 1, "a number from 0 to below 1");
  check("beta2", options.beta2, options.beta2 >= 0 && options.beta2 < 1, "a number from 0 to below 1");
  check("epsilon", options.epsilon, options.epsilon >= 0, "at least 0");
  check("weight_decay", options.weight_decay, options.weight_decay >= 0, "at least 0");
  return options;
}

std::vector<at::Tensor> checked(std::vector<at::Tensor> parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i];
    TORCH_CHECK_VALUE(parameter.is_floating_point() && parameter.is_leaf(), "RAdam: parameter ", i, " is ",
                      parameter.scalar_type(), parameter.is_leaf() ? "" : " and computed from others",
                      ", expected a floating-point leaf");
  }
  return parameters;
}

std::vector<at::Tensor> selected(const std::vector<at::Tensor>& tensors, const std::vector<size_t>& indices) {
  std::vector<at::Tensor> result;
  result.reserve(indices.size());
  for (const auto i : indices) result.push_back(tensors[i]);
  return result;
}

}  // namespace

RAdam::RAdam(std::vector<at::Tensor> parameters, RAdamOptions options)
    : Optimizer(checked(std::move(parameters)), std::make_unique<LearningRate>(options.learning_rate)),
      options_(checked(options)) {
  const auto& all = param_groups_[0].params();
  for (const auto& parameter : all) {
    exp_avg_.push_back(at::zeros_like(parameter).detach());
    exp_avg_sq_.push_back(at::zeros_like(parameter).detach());
  }
  steps_ = at::zeros({int64_t(all.size())}, at::kLong);
}

at::Tensor RAdam::step(LossClosure closure) {
  TORCH_CHECK(param_groups_.size() == 1,
              "RAdam keeps the state of the parameters that it was made with, so no group can be added");
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enabled(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  const auto& all = param_groups_[0].params();
  // Parameters of equal t share their scalars, and each operation below treats all of them in one call. Usually all have equal t.
  std::map<int64_t, std::vector<size_t>> by_step;
  auto* steps = steps_.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].grad().defined()) by_step[++steps[i]].push_back(i);
  const double rate = param_groups_[0].options().get_lr();
  for (const auto& [t, indices] : by_step) {
    std::vector<at::Tensor> gradients;
    for (const auto i : indices) gradients.push_back(all[i].grad());
    auto params = selected(all, indices), means = selected(exp_avg_, indices), squares = selected(exp_avg_sq_, indices);
    if (options_.weight_decay != 0) at::_foreach_mul_(params, 1 - rate * options_.weight_decay);
    at::_foreach_lerp_(means, gradients, 1 - options_.beta1);
    at::_foreach_mul_(squares, options_.beta2);
    at::_foreach_addcmul_(squares, gradients, gradients, 1 - options_.beta2);

    const double beta2_power = std::pow(options_.beta2, double(t));
    const double correction1 = 1 - std::pow(options_.beta1, double(t)), correction2 = 1 - beta2_power;
    const double rho_inf = 2 / (1 - options_.beta2) - 1;
    const double rho = rho_inf - 2 * double(t) * beta2_power / correction2;
    if (rho <= 5) {
      at::_foreach_add_(params, means, -rate / correction1);
      continue;
    }
    const double rectification = std::sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho));
    denominator_.resize(all.size());
    for (const auto i : indices)
      if (!denominator_[i].defined()) denominator_[i] = at::empty_like(exp_avg_sq_[i]);
    auto denominators = selected(denominator_, indices);
    at::_foreach_copy_(denominators, squares);
    at::_foreach_sqrt_(denominators);
    at::_foreach_add_(denominators, options_.epsilon);
    at::_foreach_addcdiv_(params, means, denominators, -rate * rectification * std::sqrt(correction2) / correction1);
  }
  return loss;
}

std::vector<std::pair<std::string, at::Tensor>> RAdam::named_state() const {
  std::vector<std::pair<std::string, at::Tensor>> state{{"steps", steps_}};
  for (size_t i = 0; i < exp_avg_.size(); ++i) {
    state.emplace_back("exp_avg." + std::to_string(i), exp_avg_[i]);
    state.emplace_back("exp_avg_sq." + std::to_string(i), exp_avg_sq_[i]);
  }
  return state;
}

void RAdam::restore(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  const auto own = named_state();
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    TORCH_CHECK_VALUE(found != state.end(), "RAdam: the state to restore has no tensor '", name, "'");
    TORCH_CHECK_VALUE(found->second.scalar_type() == tensor.scalar_type() && found->second.sizes() == tensor.sizes(),
                      "RAdam: in the state to restore, '", name, "' is ", found->second.scalar_type(), " ", found->second.sizes(),
                      ", expected ", tensor.scalar_type(), " ", tensor.sizes());
  }
  for (const auto& [name, tensor] : state) {
    const auto& wanted = name;
    const bool known = std::any_of(own.begin(), own.end(), [&](const auto& entry) { return entry.first == wanted; });
    TORCH_CHECK_VALUE(known, "RAdam: the state to restore has an unknown tensor '", name, "'; this optimiser has ",
                      exp_avg_.size(), " parameters");
  }
  for (const auto& [name, tensor] : own) tensor.copy_(state.at(name));
}

void RAdam::save(torch::serialize::OutputArchive& archive) const {
  for (const auto& [name, tensor] : named_state()) archive.write(name, tensor, /*is_buffer=*/true);
}

void RAdam::load(torch::serialize::InputArchive& archive) {
  std::map<std::string, at::Tensor> state;
  for (const auto& name : archive.keys()) archive.read(name, state[name], /*is_buffer=*/true);
  restore(state);
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

at::Tensor clip_each_gradient(const std::vector<at::Tensor>& parameters, double max_norm) {
  TORCH_CHECK_VALUE(max_norm > 0, "clip_each_gradient: max_norm = ", max_norm, ", expected a positive number");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  if (gradients.empty()) return at::empty({0});
  const auto norms = at::stack(at::_foreach_norm(gradients, 2));
  auto factors = ((norms + 1e-6).reciprocal() * max_norm).clamp_max(1).unbind();
  at::_foreach_mul_(gradients, factors);
  return norms;
}

}  // namespace experiments
