// Launches that run here and now, on tensors of the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "attn/kernels/cuda/linear_call.h"
#include "tests/emulation/cuda.h"

namespace attn::cuda {

struct RunHere {
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), int64_t blocks, int threads, size_t shared_bytes,
                  const Arguments&... arguments) const {
    emulation::run_grid(unsigned(blocks), unsigned(threads), shared_bytes, [&] { kernel(arguments...); });
  }
};

struct SortHere {
  void operator()(const uint64_t* keys, uint64_t* sorted, int64_t count, int bits) const {
    std::copy(keys, keys + count, sorted);
    const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    std::sort(sorted, sorted + count, [&](uint64_t a, uint64_t b) { return (a & mask) < (b & mask); });
  }
};

inline Tensor4 rows_of(const at::Tensor& x) { return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)}; }

}  // namespace attn::cuda
