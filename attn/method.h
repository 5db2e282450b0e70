// The interface every attention method stands behind.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/mask.h"
#include "attn/problem.h"

namespace attn {

// What a method can do, as data.
struct Capabilities {
  bool causal = true;
  bool cross_attention = true;  // key_len ≠ query_len
  bool key_lengths = true;
  bool gradients = true;
  std::vector<at::ScalarType> dtypes = {at::kFloat, at::kDouble, at::kBFloat16};
  std::vector<c10::DeviceType> devices = {c10::DeviceType::CPU, c10::DeviceType::CUDA};
};

// What one call costs, for predictions and plausibility checks.
struct Cost {
  double flops = 0;       // floating-point operations, a multiply-add counted as two
  double min_bytes = 0;   // least traffic with memory: every input read once, every result written once
  double peak_bytes = 0;  // most memory alive at once, inputs included
};

class AttentionMethod : public torch::nn::Module {
 public:
  // q [B,H,N,D], k [B,H,L,D], v [B,H,L,M], all of one dtype and device, any strides → [B,H,N,M] of that dtype. A query
  // that sees no key gives zeros and finite gradients. Throws c10::ValueError naming the argument and its value when
  // shapes, types or devices disagree or the method cannot do what the mask asks.
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask = {});

  virtual Capabilities capabilities() const { return {}; }

  // Why this problem is beyond the method, or nothing. The default speaks for capabilities().
  virtual std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const;

  virtual Cost cost(const Problem& problem, Protocol protocol) const = 0;

  // The method's own definition in float64, written for clearness and never timed: the output rows `rows` (int64 [R],
  // positions of queries) as [B,H,R,M]. q, k, v are float64 and whole; differentiable in all three.
  virtual at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                               const at::Tensor& rows) const = 0;

  // The name it was made under, options included: "linear:chunk=256".
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }

  // What the last forward ran on, for the record: "aten/chunked", "sdpa/flash_attention".
  const std::string& implementation() const { return implementation_; }

 protected:
  // Inputs are checked and supported.
  virtual at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) = 0;

  void ran(std::string implementation) { implementation_ = std::move(implementation); }

 private:
  std::string label_ = "attention method";
  std::string implementation_;
};

// The problem that these tensors and this mask pose. Throws as AttentionMethod::forward does.
Problem problem_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask);

}  // namespace attn
