// The measured ceilings of the CPU: the bandwidth and the arithmetic rate that no kernel on it can exceed.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

struct Ceilings {
  double read_gb_s = 0;            // streaming read of an array that is far larger than the caches
  double copy_gb_s = 0;            // copy of such an array; bytes read plus bytes written
  double fma_float32_gflop_s = 0;  // independent chains of multiply-adds in registers; two operations each
  double fma_float64_gflop_s = 0;
  std::string fma_instruction_set;  // the one that the chains ran on: avx512, avx2 or portable
  int64_t array_bytes = 0;          // size of the streamed arrays
  int64_t threads = 0;
};

// Takes about a second on `threads` threads.
Ceilings measure_ceilings(int64_t threads);

}  // namespace attnbench
