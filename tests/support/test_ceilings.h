// The ceilings of an imaginary machine, in round numbers, for tests of predictions.
#pragma once

#include "harness/sweep/prediction.h"

namespace attnbench {

inline const Json kCpuCeilings = {
    {"read_gb_s", 10}, {"copy_gb_s", 20}, {"fma_float32_gflop_s", 100}, {"fma_float64_gflop_s", 50}, {"array_bytes", 1e8}};
inline const Json kGpuCeilings = {{"copy_gb_s", 2000}, {"array_bytes", 1e9}, {"matmul_bfloat16_gflop_s", 1e5}};
inline Json with_gpu(const Json& gpu) {
  auto ceilings = kCpuCeilings;
  ceilings["gpu"] = gpu;
  return ceilings;
}
inline const Ceilings kCeilings = Ceilings::from_json(with_gpu({{"unavailable", "none here"}}));

}  // namespace attnbench
