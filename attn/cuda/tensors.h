// What the operators' CUDA sides share: tensors as kernels take them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "attn/linear/cuda/splits.h"
#include "attn/cuda/run.h"

namespace attn::cuda {

inline std::optional<ElementKind> element_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) return ElementKind::float32;
  if (dtype == at::kDouble) return ElementKind::float64;
  if (dtype == at::kBFloat16) return ElementKind::bfloat16;
  if (dtype == at::kHalf) return ElementKind::float16;
  return std::nullopt;
}

constexpr int64_t kVectorBytes = 16;

inline Tensor4 rows_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

// Rows that begin at whole vectors: the tensor itself, or a copy.
inline at::Tensor with_aligned_rows(const at::Tensor& x) {
  const auto aligned = [&](int64_t elements) { return elements * int64_t(x.element_size()) % kVectorBytes == 0; };
  const bool fits = x.stride(3) == 1 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kVectorBytes == 0 &&
                    aligned(x.stride(0)) && aligned(x.stride(1)) && aligned(x.stride(2));
  return fits ? x : x.clone(at::MemoryFormat::Contiguous);
}

// Why the tensor cores' kernels do not take rows of these sizes, or nothing.
inline std::string why_not_tiles(at::ScalarType dtype, int64_t head_dim, int64_t value_dim) {
  const auto bytes = int64_t(c10::elementSize(dtype));
  if (padded_dim(head_dim, value_dim) > 0 && head_dim * bytes % kVectorBytes == 0 && value_dim * bytes % kVectorBytes == 0)
    return "";
  return "needs head_dim and value_dim of at most 128, in whole 16 bytes, not " + std::to_string(head_dim) + " and " +
         std::to_string(value_dim);
}

}  // namespace attn::cuda
