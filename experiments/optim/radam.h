// RAdam, the optimiser of the paper's transformers, and the clipping of each tensor's gradient.
//
//   RAdam optimizer(model->parameters(), RAdamOptions{.learning_rate = 1e-3});
//   loss.backward();
//   clip_each_gradient(model->parameters(), 1.0);
//   optimizer.step();
//   optimizer.zero_grad();
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace experiments {

struct RAdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;    // of the running mean of the gradient
  double beta2 = 0.999;  // of the running mean of the squared gradient
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

// RAdam (1908.03265, algorithm 2) with decoupled weight decay (1711.05101), as torch.optim.RAdam(decoupled_weight_decay=True)
// computes it. Update number t = 1, 2, … of a parameter θ with gradient g is
//   θ ← θ − lr·weight_decay·θ;  m ← β₁m + (1 − β₁)g;  v ← β₂v + (1 − β₂)g²;  m̂ = m/(1 − β₁ᵗ);
//   ρ∞ = 2/(1 − β₂) − 1;  ρ = ρ∞ − 2tβ₂ᵗ/(1 − β₂ᵗ);
//   θ ← θ − lr·m̂                           while ρ ≤ 5, which for β₂ = 0.999 is t ≤ 5;
//   θ ← θ − lr·r·m̂·√(1 − β₂ᵗ)/(√v + ε)     afterwards, with r = √[(ρ−4)(ρ−2)ρ∞ / ((ρ∞−4)(ρ∞−2)ρ)].
// A parameter without a gradient, such as the key projection under LSH attention, is left as it is; t does not count that step.
//
// The learning rate can be changed through the interface that LibTorch's optimisers share: set_learning_rate() below does so.
class RAdam : public torch::optim::Optimizer {
 public:
  // The parameters must already be on their device. Throws c10::ValueError for an option out of range and for a parameter that is
  // not a floating-point leaf.
  explicit RAdam(std::vector<at::Tensor> parameters, RAdamOptions options = {});

  // Updates the parameters in place and returns the loss that `closure` computes, if there is one. It allocates one buffer of the
  // size of the parameters when ρ first exceeds 5, and nothing in later steps.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Everything that a checkpoint needs beside the options: "steps" is int64 [P] with t of every parameter; "exp_avg.i" and
  // "exp_avg_sq.i" are m and v of parameter i, which has their shape. The tensors share the memory of the optimiser's.
  std::vector<std::pair<std::string, at::Tensor>> named_state() const;
  // Copies the state from tensors with the names, shapes and dtypes of named_state(), on any device. Throws c10::ValueError that
  // names the tensor that is missing, unknown or of another shape or dtype; the optimiser is then unchanged.
  void restore(const std::map<std::string, at::Tensor>& state);

  // The same state in the archives of torch::save() and torch::load().
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  RAdamOptions options_;  // except for the learning rate, which LibTorch's options hold
  std::vector<at::Tensor> exp_avg_, exp_avg_sq_;
  std::vector<at::Tensor> denominator_;  // scratch, undefined until ρ first exceeds 5
  at::Tensor steps_;                     // int64 [P], on the CPU
};

// Sets the learning rate of every parameter of an optimiser, RAdam or one of LibTorch's.
void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

// Multiplies each gradient g by min(1, max_norm/(‖g‖₂ + 1e-6)), tensor by tensor, as torch.nn.utils.clip_grad_norm_ does for all
// tensors together. Returns ‖g‖₂ of every gradient before that, [G] on the gradients' device, in the order of the parameters that
// have one; empty if none has. A gradient with NaN or infinity becomes NaN. On a GPU this does not wait for the device. Throws
// c10::ValueError unless max_norm is positive.
at::Tensor clip_each_gradient(const std::vector<at::Tensor>& parameters, double max_norm);

}  // namespace experiments
