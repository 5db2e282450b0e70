// Runs every kernel of the project under the emulation, in problems that are small but reach each part of the kernels: several
// splits, chunks and blocks, a last chunk that is not full, hidden keys.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace attn::emulation {

struct KernelRun {
  std::string name;
  std::function<void()> run;
};

// Passes of all methods with CUDA kernels: forward and backward in each element type and tile dimension, and decoding steps.
const std::vector<KernelRun>& kernel_runs();

}  // namespace attn::emulation
