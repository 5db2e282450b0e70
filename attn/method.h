// The interface every attention method stands behind.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/decoding.h"
#include "attn/mask.h"
#include "attn/problem.h"

namespace attn {

// What a method can do, as data.
struct Capabilities {
  bool full = true;  // without the causal mask
  bool causal = true;
  bool cross_attention = true;  // key_len ≠ query_len
  bool key_lengths = true;
  bool gradients = true;
  bool decoding = false;  // begin_decoding, step and prefill
  // step() gives a row of the causal forward. Not so where later tokens change which keys a row meets.
  bool steps_are_rows_of_forward = true;
  // A NaN reaches exactly the rows that see it. Not so where a hidden weight of zero is multiplied with it.
  bool nan_reaches_its_rows_only = true;
  std::vector<at::ScalarType> dtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};  // float16 on CUDA alone
  std::vector<c10::DeviceType> devices = {c10::DeviceType::CPU, c10::DeviceType::CUDA};
};

// What one call of a protocol costs, for predictions and plausibility checks. Decoding: one token after query_len others,
// its inputs being that token's.
struct Cost {
  double flops = 0;       // floating-point operations, a multiply-add counted as two
  double min_bytes = 0;   // least traffic with memory: every input read once, every result written once
  double peak_bytes = 0;  // most memory alive at once, inputs and decoding state included
};

class AttentionMethod : public torch::nn::Module {
 public:
  // q [B,H,N,D], k [B,H,L,D], v [B,H,L,M], all of one dtype and device, any strides → [B,H,N,M] of that dtype. A query
  // that sees no key gives zeros and finite gradients. Throws c10::ValueError naming the argument and its value when
  // shapes, types or devices disagree or the method cannot do what the mask asks.
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask = {});

  virtual Capabilities capabilities() const { return {}; }

  // Largest accepted max_rel_error (see Agreement) for inputs of this type.
  virtual double error_tolerance(at::ScalarType dtype) const;

  // Why this problem is beyond the method, or nothing. The default speaks for capabilities().
  virtual std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const;

  virtual Cost cost(const Problem& problem, Protocol protocol) const = 0;

  // The method's own definition in float64, written for clearness and never timed: the output rows `rows` (int64 [R],
  // positions of queries) as [B,H,R,M]. q, k, v are float64 and whole; differentiable in all three.
  virtual at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                               const at::Tensor& rows) const = 0;

  // The attention that this method approximates, likewise evaluated exactly; nothing for a method that defines its own.
  virtual std::optional<at::Tensor> approximated(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                                                 const at::Tensor& rows) const {
    (void)q, (void)k, (void)v, (void)mask, (void)rows;
    return std::nullopt;
  }

  // Figures of the method's own that belong into a record, by the names of their columns; arguments as of reference().
  virtual std::vector<std::pair<std::string, double>> diagnostics(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                                  const Mask& mask, const at::Tensor& rows) const {
    (void)q, (void)k, (void)v, (void)mask, (void)rows;
    return {};
  }

  // Decoding: token after token of [batch] sequences at once, each seeing those before it and itself. What step() returns
  // for token i is row i of the causal forward, or of that over the first i+1 tokens alone: capabilities() says which.
  //
  // `problem` says the sizes, key_len = query_len being the most tokens that may come; causal, without key lengths. Throws
  // c10::ValueError with why_unsupported()'s reason.
  std::unique_ptr<DecodingState> begin_decoding(const Problem& problem) const;
  // One token: q, k [B,H,1,D], v [B,H,1,M] → [B,H,1,M]. Throws c10::ValueError when shapes or types are not the state's, the
  // state is another method's, or is full.
  at::Tensor step(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  // T tokens whose outputs nobody wants: q, k [B,H,T,D], v [B,H,T,M].
  void extend(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  // The first T tokens together with their outputs [B,H,T,M]; the state must be fresh.
  at::Tensor prefill(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  // What the state of this problem must take after `position` tokens, by the method's formula.
  virtual double state_bytes(const Problem& problem, int64_t position) const {
    (void)problem, (void)position;
    return 0;
  }

  // The name it was made under, options included: "linear:chunk=256".
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }

  // What the last forward ran on, for the record: "aten/chunked", "sdpa/flash_attention".
  const std::string& implementation() const { return implementation_; }

 protected:
  // Inputs are checked and supported.
  virtual at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) = 0;

  // For methods with capabilities().decoding. Tensors are checked, and fit the state.
  virtual std::unique_ptr<DecodingState> make_state(const Problem& problem) const;
  virtual void absorb(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  virtual at::Tensor decode(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  // By default the causal forward, then absorb().
  virtual at::Tensor fill(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

  void ran(std::string implementation) { implementation_ = std::move(implementation); }

 private:
  void check_tokens(const DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

  std::string label_ = "attention method";
  std::string implementation_;
};

// The problem that these tensors and this mask pose. Throws as AttentionMethod::forward does.
Problem problem_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask);

}  // namespace attn
