// Softmax attention with its scores materialised, and what its relatives share with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "attn/method.h"

namespace attn {

// softmax(qkᵀ/√D + mask) v, [B,H,N,M]. NaN reaches exactly the rows that see it.
at::Tensor materialised_softmax(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask);

// FLOPs, traffic and memory of the above.
Cost materialised_softmax_cost(const Problem& problem, bool backward);

// Rows of a sequence that grows within memory taken beforehand: [B,H,capacity,dim].
class GrowingRows {
 public:
  GrowingRows(const Problem& problem, int64_t dim);
  void append(const at::Tensor& rows);
  at::Tensor rows() const { return all_.narrow(2, 0, size_); }
  const at::Tensor& storage() const { return all_; }

 private:
  at::Tensor all_;
  int64_t size_ = 0;
};

// Decodes by recomputing the growing prefix, as the paper ran it.
class Softmax : public AttentionMethod {
 public:
  Capabilities capabilities() const override;
  Cost cost(const Problem& problem, Protocol protocol) const override;
  at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                       const at::Tensor& rows) const override;
  std::optional<at::Tensor> approximated(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                                         const at::Tensor& rows) const override {
    return reference(q, k, v, mask, rows);
  }
  double state_bytes(const Problem& problem, int64_t position) const override;

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) override;
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override;
  void absorb(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;
  at::Tensor decode(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;
};

// Decoding with a cache of keys and values: one row of scores a token.
class CachedSoftmax : public Softmax {
 public:
  Cost cost(const Problem& problem, Protocol protocol) const override;

 protected:
  // The query's row of softmax over all cached keys.
  static at::Tensor attend_to_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
};

}  // namespace attn
