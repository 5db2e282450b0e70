// DecodingState: what a method stores about the tokens of a batch of sequences so far, in order to decode the next ones.
// BoundStep: a decoding step whose tensors are known beforehand.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
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
  // Whether every step changes the state's tensors in place and does the same work, whatever the position. What a step launches
  // on a GPU can then be recorded once, as a CUDA graph, and run again for later tokens.
  virtual bool steps_can_be_replayed() const { return false; }

 protected:
  DecodingState() = default;
  // Every tensor that the state holds.
  virtual std::vector<at::Tensor> tensors() const = 0;

 private:
  friend class AttentionMethod;
  friend class BoundStep;
  const AttentionMethod* owner_ = nullptr;  // the method that made the state
  Problem problem_;
  int64_t position_ = 0;
};

// Decodes token after token from tensors that stay in the same memory, as AttentionMethod::step() does, but allocates nothing and
// can be divided between threads. AttentionMethod::bind_step() makes it. For each token the caller fills q, k and v, has run()
// process every head once, and calls finish().
class BoundStep {
 public:
  virtual ~BoundStep() = default;
  BoundStep(const BoundStep&) = delete;
  BoundStep& operator=(const BoundStep&) = delete;

  // Adds the token to the state of the heads begin ≤ index < end, where index = batch entry · H + head, and writes their output.
  // Several threads may process different heads at the same time, each as a worker of its own, 0 ≤ worker < workers. The state
  // must not be full.
  virtual void run(int64_t begin, int64_t end, int64_t worker) noexcept = 0;
  // Counts the token, after all heads were processed.
  void finish() noexcept { ++state_->position_; }

  // The implementation that runs, such as "kernel/avx512".
  virtual const std::string& implementation() const = 0;

 protected:
  BoundStep() = default;

 private:
  friend class AttentionMethod;
  DecodingState* state_ = nullptr;
};

}  // namespace attn
