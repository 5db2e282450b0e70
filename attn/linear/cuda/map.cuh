// Feature maps of linear attention, an entry at a time.
#pragma once

#include "attn/cuda/device.h"
#include "attn/linear/cuda/call.h"

namespace attn::cuda {

template <class T>
__device__ inline T apply_map(LinearMapKind map, T x) {
  if (map == LinearMapKind::relu) return x > 0 || x != x ? x : T(0);
  if (x > 0) return x + 1;
  const T e = exp(x);
  return map == LinearMapKind::elu ? e : T(0.1) * e + T(0.9);
}
template <class T>
__device__ inline T map_gradient(LinearMapKind map, T x, T of_phi) {
  if (x > 0) return of_phi;
  if (map == LinearMapKind::relu) return 0;
  return of_phi * exp(x) * (map == LinearMapKind::elu ? T(1) : T(0.1));
}

}  // namespace attn::cuda
