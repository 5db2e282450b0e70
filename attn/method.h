// AttentionMethod, the interface of every attention method: forward, decoding, capabilities, cost and the float64 reference.
//
//   const auto method = attn::make_method("linear:chunk=256");   // attn/registry.h
//   const auto output = method->forward(q, k, v, {.causal = true});
//
//   const auto state = method->begin_decoding(problem);
//   method->extend(*state, prompt);                               // or prefill(), where the prompt's outputs are wanted
//   const auto row = method->step(*state, token);
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/decoding.h"
#include "attn/inputs.h"
#include "attn/mask.h"
#include "attn/problem.h"

namespace attn {

// What a method can do, as data.
struct Capabilities {
  bool full = true;             // without the causal mask
  bool causal = true;           // with it
  bool cross_attention = true;  // key_len ≠ query_len
  bool key_lengths = true;
  bool gradients = true;
  bool decoding = false;  // begin_decoding(), step(), extend() and prefill()
  // Whether step() gives a row of the causal forward over the whole sequence. False where later tokens change which keys a row
  // meets; step() then gives the last row of the causal forward over the tokens so far.
  bool steps_are_rows_of_forward = true;
  // Whether a NaN reaches exactly the rows that see it. False where a hidden weight of zero is multiplied with it.
  bool nan_reaches_its_rows_only = true;
  std::vector<at::ScalarType> dtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};  // float16 on CUDA only
  std::vector<c10::DeviceType> devices = {c10::DeviceType::CPU, c10::DeviceType::CUDA};
};

// A number that a method reports about itself beside its results.
struct DiagnosticSpec {
  std::string name;  // in records; unique among record columns and, unless they share the whole specification, among methods
  std::string unit;
  std::string description;
};

// What one call of a protocol costs, for predictions and plausibility checks. For Protocol::decode the call is one step after
// query_len tokens, and its inputs are those of that token.
struct Cost {
  double flops = 0;       // floating-point operations; a multiply-add counts as two
  double min_bytes = 0;   // lower bound of the memory traffic: every input is read once and every result is written once
  double peak_bytes = 0;  // maximum of the memory in use at once, including the inputs and the decoding state
};

// The accepted relative error of a result in this dtype: its largest difference from the float64 reference, divided by the
// reference's largest entry. Throws c10::ValueError for a dtype that is not floating point.
double error_tolerance(at::ScalarType dtype);

class AttentionMethod : public torch::nn::Module {
 public:
  // Attention of the inputs → [B,H,N,M] in their dtype. A query that sees no key gives zeros and finite gradients. Throws
  // c10::ValueError that names the argument and its value when shapes, dtypes or devices disagree, or that says why the method
  // does not support the problem.
  at::Tensor forward(const Inputs& inputs);
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask = {}) {
    return forward(Inputs{q, k, v, mask});
  }

  virtual Capabilities capabilities() const { return {}; }

  // As attn::error_tolerance(), for methods that need another one.
  virtual double error_tolerance(at::ScalarType dtype) const;

  // Why the method cannot be called for this problem, or nothing. The default follows from capabilities().
  virtual std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const;

  virtual Cost cost(const Problem& problem, Protocol protocol) const = 0;

  // The method's own definition in float64, written for clarity and never timed: the output rows `rows` (int64 [R], positions of
  // queries) as [B,H,R,M]. The inputs are float64 and hold whole sequences; the result is differentiable in each of them.
  virtual at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const = 0;

  // The attention that this method approximates, computed exactly, with the arguments and the result of reference(). Nothing for
  // a method that approximates no other.
  virtual std::optional<at::Tensor> approximated(const Inputs& inputs, const at::Tensor& rows) const {
    (void)inputs, (void)rows;
    return std::nullopt;
  }

  // The diagnostics that diagnostics() may report. To report another one is an error.
  virtual std::vector<DiagnosticSpec> diagnostic_specs() const { return {}; }
  // What the method reports about itself for the record, by name. Arguments as of reference().
  virtual std::vector<std::pair<std::string, double>> diagnostics(const Inputs& inputs, const at::Tensor& rows) const {
    (void)inputs, (void)rows;
    return {};
  }

  // Decoding takes in [batch] sequences token by token; each token sees those before it and itself. What step() returns for
  // token i is row i of the causal forward, or the last row of that over the first i+1 tokens: capabilities() says which. The
  // mask of the tokens must be causal and without key lengths.

  // A state without tokens. `problem` gives the sizes, where key_len = query_len is the number of tokens that fit. Throws
  // c10::ValueError with the reason of why_unsupported().
  std::unique_ptr<DecodingState> begin_decoding(const Problem& problem) const;
  // Takes in one token, q and k [B,H,1,D] and v [B,H,1,M], and returns its output [B,H,1,M]. Throws c10::ValueError when shapes,
  // dtype or device are not the state's, when the state belongs to another method, or when it is full.
  at::Tensor step(DecodingState& state, const Inputs& token);
  // Takes in T tokens without computing their outputs: q and k [B,H,T,D], v [B,H,T,M]. Throws as step() does.
  void extend(DecodingState& state, const Inputs& tokens);
  // Takes the first T tokens into a state without any, and returns their outputs [B,H,T,M]. Throws as step() does.
  at::Tensor prefill(DecodingState& state, const Inputs& tokens);
  // The bytes that a state of this problem must hold after `position` tokens, by the method's formula.
  virtual double state_bytes(const Problem& problem, int64_t position) const {
    (void)problem, (void)position;
    return 0;
  }

  // The name that the method was made under, including its options: "linear:chunk=256".
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }

  // Which implementation the last call ran, for the record: "aten/chunked", "sdpa/flash_attention".
  const std::string& implementation() const { return implementation_; }

 protected:
  // The forward. The inputs are checked, and the method supports their problem.
  virtual at::Tensor attend(const Inputs& inputs) = 0;

  // What methods with capabilities().decoding implement: begin_decoding(), extend(), step() and prefill(), in this order. The
  // tokens are checked and fit the state, whose position() is advanced by the caller.
  virtual std::unique_ptr<DecodingState> make_state(const Problem& problem) const;
  virtual void absorb(DecodingState& state, const Inputs& tokens);
  virtual at::Tensor decode(DecodingState& state, const Inputs& token);
  // The default calls attend(), then absorb().
  virtual at::Tensor fill(DecodingState& state, const Inputs& tokens);

  // To be called with what implementation() shall return.
  void ran(std::string implementation) { implementation_ = std::move(implementation); }

 private:
  void check_tokens(const DecodingState& state, const Inputs& tokens) const;

  std::string label_ = "attention method";
  std::string implementation_;
};

}  // namespace attn
