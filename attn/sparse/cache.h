// KeyValueCache: the keys and values that the next token of a softmax decoder sees.
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

// softmax(q kᵀ/√D) v for the queries of one token, q [B,H,1,D], and all cached keys [B,G,T,D] and values [B,W,T,M], with the
// sinks [U] of the heads if there are any, composed of ATen operations.
at::Tensor attend_to_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::optional<at::Tensor>& sinks = std::nullopt);

// The softmax of scores [B,…,T] and, in each row, of one more score, which is broadcast from `sinks`, without the weight of that
// one.
at::Tensor softmax_with_sinks(const at::Tensor& scores, const at::Tensor& sinks);

// The predicted cost of a decoding step that reads all cached keys and values once, without the memory of its scores.
Cost cached_step_cost(const Problem& problem, double state_bytes);

// For the pattern `all` and for windows. The memory is allocated once, for as many tokens as a token may see. Of a window, a new
// token takes the place of the one that is not seen any more; the order of keys does not matter to the softmax.
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
  // Writes the keys and values of `tokens` behind the tokens of position(), or in the place of some of them. Returns what the
  // cache then holds.
  Content append(const Inputs& tokens);

  // A step as AttentionMethod::bind_step() describes it, by the kernels of an instruction set, or those that "auto" names, for
  // float32 on the CPU; null for other tensors.
  std::unique_ptr<BoundStep> bind(const Inputs& token, const at::Tensor& output, int64_t workers,
                                  const std::string& implementation = "auto");

  struct Step {
    at::Tensor output;           // [B,U,1,M]
    std::string implementation;  // as records name it
  };
  // Adds a token, q and k [B,H,1,D] and [B,G,1,D] and v [B,W,1,M], and attends to what the cache holds: by kernels as bind(), or
  // composed of ATen operations.
  Step step(const Inputs& token, const std::string& implementation);

 protected:
  std::vector<at::Tensor> tensors() const override { return {k_, v_}; }

 private:
  friend class BoundCacheStep;
  int64_t capacity() const { return k_.size(2); }
  // Where the token at this position lies.
  int64_t place(int64_t position) const {
    return position < capacity() ? position : first_ + (position - first_) % (capacity() - first_);
  }

  at::Tensor k_, v_;  // [B,G,capacity,D], [B,W,capacity,M]
  int64_t first_;     // tokens that stay
};

}  // namespace attn
