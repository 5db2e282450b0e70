// Cuts one allocation into the buffers of a kernel.
#pragma once

#include "attn/cpu/rows.h"

namespace attn::cpu {
namespace {  // a copy for each instruction set, see simd.h

// A kernel states the layout of its buffers once, as a sequence of take(). Without memory that sequence only counts.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* memory = nullptr) : memory_(static_cast<float*>(memory)) {}

  // The next `size` numbers, or null without memory.
  float* take(int64_t size) {
    float* buffer = memory_ ? memory_ + taken_ : nullptr;
    taken_ += padded(size);
    return buffer;
  }
  int64_t taken() const { return taken_; }

 private:
  float* memory_;
  int64_t taken_ = 0;
};

}  // namespace
}  // namespace attn::cpu
