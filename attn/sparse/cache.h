// KeyValueCache: the keys and values that the next token sees when softmax attention decodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/decoding.h"
#include "attn/inputs.h"
#include "attn/method.h"
#include "attn/pattern.h"

namespace attn {

// softmax(q kᵀ/√D) v, [B,U,1,M], of the queries of one token, q [B,H,1,D], all cached keys [B,G,T,D] and values [B,W,T,M], and
// the sinks [U] of the heads if there are any, composed of ATen operations.
at::Tensor attend_to_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::optional<at::Tensor>& sinks = std::nullopt);

// The softmax of scores [B,…,T] with one more score in each row, which is broadcast from `sinks`. The weight of that score is
// left out of the result.
at::Tensor softmax_with_sinks(const at::Tensor& scores, const at::Tensor& sinks);

// The predicted cost of a decoding step that reads all cached keys and values once, without the memory of its scores.
Cost cached_step_cost(const Problem& problem, double state_bytes);

// For the pattern `all` and for windows. The memory is allocated once, for as many tokens as a token may see. With a window, a
// new token takes the place of the one that is no longer seen, since the order of keys does not change the softmax.
class KeyValueCache : public DecodingState {
 public:
  explicit KeyValueCache(const Problem& problem);

  // How many tokens the cache of a problem holds, and its predicted size in bytes.
  static int64_t capacity_for(const Problem& problem);
  static double bytes_for(const Problem& problem);

  // What the cache holds: keys [B,G,size,D] and values [B,W,size,M].
  struct Content {
    at::Tensor k, v;
  };
  // Writes the keys and values of `tokens`, whose first is at position(), after those of earlier tokens or in their places.
  // Returns what the cache then holds.
  Content append(const Inputs& tokens);

  // A step as AttentionMethod::bind_step() describes it, with the kernels of the instruction set that `implementation` names, or
  // of the best one for "auto". Null unless the tensors are float32 on the CPU.
  std::unique_ptr<BoundStep> bind(const Inputs& token, const at::Tensor& output, int64_t workers,
                                  const std::string& implementation = "auto");

  struct Step {
    at::Tensor output;           // [B,U,1,M]
    std::string implementation;  // its name in records
  };
  // Adds a token, q [B,H,1,D], k [B,G,1,D] and v [B,W,1,M], and attends to what the cache then holds: with kernels if bind() has
  // them, otherwise composed of ATen operations.
  Step step(const Inputs& token, const std::string& implementation);

 protected:
  std::vector<at::Tensor> tensors() const override { return {k_, v_}; }

 private:
  friend class BoundCacheStep;
  int64_t capacity() const { return k_.size(2); }
  // The place in the cache of the token at this position.
  int64_t place(int64_t position) const {
    return position < capacity() ? position : first_ + (position - first_) % (capacity() - first_);
  }

  at::Tensor k_, v_;  // [B,G,capacity,D], [B,W,capacity,M]
  int64_t first_;     // the number of first tokens, which are never replaced
};

}  // namespace attn
