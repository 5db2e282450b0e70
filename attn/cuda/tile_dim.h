// The dimensions that the kernels for tensor cores are compiled for.
#pragma once

#include <cstdint>

namespace attn::cuda {

// The smallest compiled dimension that is at least head_dim and value_dim, or 0 if there is none. Tiles are padded to it with
// zeros.
inline int tile_dim(int64_t head_dim, int64_t value_dim) {
  const int64_t larger = head_dim > value_dim ? head_dim : value_dim;
  for (const int dim : {16, 32, 64, 128})
    if (larger <= dim) return dim;
  return 0;
}

}  // namespace attn::cuda
