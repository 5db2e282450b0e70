// Measures the ceilings of the CPU: the memory bandwidth and the arithmetic rate that no kernel on it can exceed.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

struct Ceilings {
  double read_gb_s = 0;            // streaming read of an array that is far larger than the caches
  double copy_gb_s = 0;            // copy of such an array; bytes read plus bytes written
  double fma_float32_gflop_s = 0;  // independent chains of multiply-adds in registers; a multiply-add is two operations
  double fma_float64_gflop_s = 0;
  double fma_float32_avx2_gflop_s = 0;  // the same as for float32 in the vectors of AVX2; 0 on a processor without it
  std::string fma_instruction_set;      // instruction set of the chains: avx512, avx2 or portable
  int64_t array_bytes = 0;              // size of each streamed array
  int64_t threads = 0;
};

// Runs on `threads` threads for about a second. Sets LibTorch's number of threads.
Ceilings measure_ceilings(int64_t threads);

}  // namespace attnbench
