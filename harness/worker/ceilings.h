// The machine's measured ceilings: what no kernel on it can beat.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

struct Ceilings {
  double read_gb_s = 0;            // streaming read of an array far beyond the caches
  double copy_gb_s = 0;            // copy of such an array, bytes read plus bytes written
  double fma_float32_gflop_s = 0;  // independent multiply-add chains in registers, two operations each
  double fma_float64_gflop_s = 0;
  std::string fma_instruction_set;  // that the chains ran on: avx512, avx2 or portable
  int64_t array_bytes = 0;          // of the streamed arrays
  int64_t threads = 0;
};

// About a second on `threads` threads.
Ceilings measure_ceilings(int64_t threads);

}  // namespace attnbench
