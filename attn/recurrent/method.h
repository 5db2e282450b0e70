// RecurrentMethod, the base class of the methods of recurrent attention: gated-delta, delta, kda, gla, simple-gla, retnet and
// lightning.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "attn/method.h"
#include "attn/options.h"
#include "attn/recurrent/implementation.h"

namespace attn {

// What distinguishes the methods.
struct RecurrentRule {
  bool delta = false;          // the rule of the update, see attn/recurrent/recurrent_attention.h
  bool reads_g = false;        // whether the decays are an input
  bool feature_gates = false;  // whether it has a decay for each feature of the keys
  bool reads_beta = false;     // whether beta is an input
  bool normalize = false;      // whether q and k are divided by their lengths
  // For constant decays, the logarithm of the decay of head `head` of `heads` heads; otherwise null.
  double (*constant_decay)(int64_t head, int64_t heads) = nullptr;
};

class RecurrentMethod : public AttentionMethod {
 public:
  // `implementation` is a value of implementation_option().
  RecurrentMethod(RecurrentRule rule, std::string implementation);

  Capabilities capabilities() const override;
  std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const override;
  Cost cost(const Problem& problem, Protocol protocol) const override;
  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override;
  // These methods do not approximate softmax attention.
  std::optional<ExactAttention> exact_attention(const Inputs&, const at::Tensor&) const override { return std::nullopt; }
  double state_bytes(const Problem& problem, int64_t position) const override;

 protected:
  at::Tensor attend(const Inputs& inputs) override;
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override;
  void absorb(DecodingState& state, const Inputs& tokens) override;
  at::Tensor decode(DecodingState& state, const Inputs& token) override;
  std::unique_ptr<BoundStep> make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                             int64_t workers) const override;
  at::Tensor fill(DecodingState& state, const Inputs& tokens) override;

 private:
  // The g of a call: the input g, or the constant decays [B,W,T], expanded from one number for each head; nothing if the state
  // does not decay.
  std::optional<at::Tensor> decays_of(const Inputs& inputs) const;
  RecurrentArguments arguments_of(const Inputs& inputs) const;
  ImplementationRequest request_for(const Problem& problem, bool gradients) const;
  // Null if the problem is composed of ATen operations.
  const RecurrentImplementation* implementation_for(const Problem& problem, bool gradients) const {
    return implementations_.find(request_for(problem, gradients));
  }

  RecurrentRule rule_;
  std::string implementation_name_;
  ImplementationResolver<RecurrentRegistry> implementations_{recurrent_implementations()};
};

}  // namespace attn
