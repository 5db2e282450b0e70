// Work of a known amount, whose time tells how fast the machine is: multiply-adds in registers, and reading memory. The ceilings
// of the machine and the probes between samples are measured with it.
#pragma once

#include <cstdint>

namespace attnbench {

// The number of independent multiply-adds, each of a whole vector, in one round of an FmaKernel.
inline constexpr int kFmaChains = 12;

// Multiply-adds in the widest vectors that this processor has.
struct FmaKernels {
  // Each makes this many rounds of kFmaChains multiply-adds, and returns a number that depends on all of them.
  double (*float32)(int64_t rounds);
  double (*float64)(int64_t rounds);
  int vector_bytes;
  const char* name;  // the instruction set: avx512, avx2 or portable
};
const FmaKernels& fma_kernels();
// Multiply-adds in the vectors of AVX2; null if this processor lacks them.
const FmaKernels* fma_kernels_avx2();
// Multiply-adds of float32 in vectors of 16 bytes. Unlike those of wider vectors, which a core needs some microseconds to get
// ready for, their speed does not depend on what ran before.
double narrow_fma(int64_t rounds);

// Reads `count` integers from memory as fast as one core can, and returns their sum.
uint64_t read_sum(const uint64_t* data, int64_t count);

}  // namespace attnbench
