// A method's decoding state: what it keeps between one token and the next of the sequences that it decodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "attn/problem.h"

namespace attn {

class AttentionMethod;

class DecodingState {
 public:
  virtual ~DecodingState() = default;
  DecodingState(const DecodingState&) = delete;
  DecodingState& operator=(const DecodingState&) = delete;

  // The problem that decoding was begun with; its key_len is the number of tokens that fit.
  const Problem& problem() const { return problem_; }
  // Tokens taken in so far.
  int64_t position() const { return position_; }
  // Bytes of tensors().
  int64_t bytes() const;

 protected:
  DecodingState() = default;
  // Every tensor that the state holds.
  virtual std::vector<at::Tensor> tensors() const = 0;

 private:
  friend class AttentionMethod;
  const AttentionMethod* owner_ = nullptr;
  Problem problem_;
  int64_t position_ = 0;
};

}  // namespace attn
