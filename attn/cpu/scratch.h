// Cuts one allocation into the buffers of a kernel.
#pragma once

#include "attn/cpu/rows.h"

namespace attn::cpu {
namespace {  // each instruction set needs its own copy, see simd.h

// A kernel states the layout of its buffers once, as a sequence of calls of take(). On a cutter without memory the same calls
// only count how many numbers the buffers need.
class ScratchCutter {
 public:
  ScratchCutter() : memory_(nullptr), counts_only_(true) {}
  explicit ScratchCutter(void* memory) : memory_(static_cast<float*>(memory)), counts_only_(false) {}

  // A buffer of `size` numbers, or null without memory. Buffers are padded, so that each begins at a multiple of kPadding
  // numbers.
  float* take(int64_t size) {
    float* buffer = counts_only_ ? nullptr : memory_ + taken_;
    taken_ += padded(size);
    return buffer;
  }
  int64_t taken() const { return taken_; }

 private:
  float* memory_;
  bool counts_only_;
  int64_t taken_ = 0;
};

}  // namespace
}  // namespace attn::cpu
