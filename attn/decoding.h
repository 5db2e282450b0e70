// What a method keeps between the tokens of the sequences it decodes.
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

  const Problem& problem() const { return problem_; }
  int64_t position() const { return position_; }  // tokens taken in
  int64_t bytes() const;                          // of tensors()

 protected:
  DecodingState() = default;
  // Every tensor that is kept.
  virtual std::vector<at::Tensor> tensors() const = 0;

 private:
  friend class AttentionMethod;
  const AttentionMethod* owner_ = nullptr;
  Problem problem_;
  int64_t position_ = 0;
};

}  // namespace attn
