// What the CPU kernels' callers share: tensors as rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "attn/kernels/linear_kernels.h"

namespace attn::kernels {

inline std::optional<Element> element_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) return Element::float32;
  if (dtype == at::kDouble) return Element::float64;
  if (dtype == at::kBFloat16) return Element::bfloat16;
  return std::nullopt;
}

// The elements of each row side by side: the tensor itself, or a copy.
inline at::Tensor with_dense_rows(const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous(); }

// The rows of one (batch entry, head) of x [B,H,T,dim]; nothing of an undefined tensor.
inline Rows rows_of_head(const at::Tensor& x, int64_t index) {
  if (!x.defined()) return {};
  const auto batch = index / x.size(1), head = index % x.size(1);
  return {static_cast<char*>(x.data_ptr()) + int64_t(x.element_size()) * (batch * x.stride(0) + head * x.stride(1)), x.stride(2)};
}

}  // namespace attn::kernels
