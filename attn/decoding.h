// DecodingState: what a method stores about the tokens of a batch of sequences so far, in order to decode the next ones.
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

  // The problem that was passed to AttentionMethod::begin_decoding(); its key_len is the maximum number of tokens.
  const Problem& problem() const { return problem_; }
  // The number of tokens of each sequence that the state holds.
  int64_t position() const { return position_; }
  // The memory of tensors(), in bytes.
  int64_t bytes() const;

 protected:
  DecodingState() = default;
  // Every tensor that the state holds.
  virtual std::vector<at::Tensor> tensors() const = 0;

 private:
  friend class AttentionMethod;
  const AttentionMethod* owner_ = nullptr;  // the method that made the state
  Problem problem_;
  int64_t position_ = 0;
};

}  // namespace attn
