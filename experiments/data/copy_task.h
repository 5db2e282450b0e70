// The copy task of "Transformers are RNNs", section 4.1: a model sees random symbols and a separator, and has to repeat the
// symbols.
//
// A sequence x of length + 1 tokens is made from n random symbols s, with n uniform in min_n…max_n:
//
//   position   0 … n-1    n            n+1 … 2n    2n+1 … length
//   token      s          separator 0  s again     0 (a separator, then padding)
//
// With a gap, f fillers stand between the symbols and their copies, with f uniform in 0…max_gap, so that the place of the copies
// cannot be known beforehand. The filler is the token symbols + 1:
//
//   position   0 … n-1    n            n+1 … n+f   n+f+1        n+f+2 … 2n+f+1   then
//   token      s          separator 0  fillers     separator 0  s again          0
//
// The inputs are x[0…length-1], and the targets are x[1…length], so that target i is the token that follows input i. The loss
// mask is true at the positions n-1 … 2n-1 of the targets. The target at n-1 is the separator, which the inputs before it
// announce only in so far as n is limited. The targets at n … 2n-1 are the n repeated symbols. The tokens after them are not
// scored. With a gap, the copies alone are scored.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace experiments {

struct CopyTaskSettings {
  int64_t length = 128;  // tokens of the inputs; at least 2 max_n + 2 + max_gap
  int64_t symbols = 10;  // the symbols are 1 … symbols, and a model has symbols + 1 tokens, or one more with a gap
  int64_t min_n = 32;    // smallest number of symbols to copy; at least 1
  int64_t max_n = 62;    // largest number of symbols to copy; at least min_n
  int64_t max_gap = 0;   // largest number of fillers; 0 for the task without a gap
};

struct CopyBatch {
  at::Tensor inputs;   // int64 [B, length]
  at::Tensor targets;  // int64 [B, length]
  at::Tensor mask;     // bool [B, length], true where the loss is computed
};

class CopyTask {
 public:
  // Throws c10::ValueError, naming the setting and its value, if a setting is outside its range.
  explicit CopyTask(const CopyTaskSettings& settings = {});

  const CopyTaskSettings& settings() const { return settings_; }

  // Draws `batch` sequences with a generator of the CPU. The same state of the generator gives the same batch; save it with
  // generator.get_state() and restore it with generator.set_state(). Throws c10::ValueError if `batch` is below 1 or if the
  // generator is not one of the CPU.
  CopyBatch next(int64_t batch, at::Generator generator) const;

 private:
  CopyTaskSettings settings_;
};

}  // namespace experiments
