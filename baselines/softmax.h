// Softmax attention that materialises its scores, and the parts of it that other softmax methods use.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "attn/method.h"

namespace attn {

// softmax(qkᵀ/√D + mask) v as [B,H,N,M] in the dtype of the inputs. A NaN affects exactly the rows that see it.
at::Tensor materialised_softmax(const Inputs& inputs);

// The predicted cost of materialised_softmax(), including the backward pass if `backward`.
Cost materialised_softmax_cost(const Problem& problem, bool backward);

// Decodes by recomputing the attention of the whole prefix at each token, as "Transformers are RNNs" measured softmax.
class Softmax : public AttentionMethod {
 public:
  Capabilities capabilities() const override;
  Cost cost(const Problem& problem, Protocol protocol) const override;
  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override;
  double state_bytes(const Problem& problem, int64_t position) const override;

 protected:
  at::Tensor attend(const Inputs& inputs) override;
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override;
  void absorb(DecodingState& state, const Inputs& tokens) override;
  at::Tensor decode(DecodingState& state, const Inputs& token) override;
};

// The base of methods that decode with a cache of keys and values and compute one row of scores for each token.
class CachedSoftmax : public Softmax {
 public:
  Capabilities capabilities() const override;
  Cost cost(const Problem& problem, Protocol protocol) const override;
};

}  // namespace attn
