// The check that the operators make of tensors whose shape and dtype follow from their other arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <vector>

namespace attn {

// Throws c10::ValueError, which begins with `name`, if the tensor has another shape or dtype, or is on another device than
// `like`.
inline void check_tensor(const char* name, const at::Tensor& x, const std::vector<c10::SymInt>& shape, at::ScalarType dtype,
                         const at::Tensor& like) {
  TORCH_CHECK_VALUE(x.sym_sizes() == c10::SymIntArrayRef(shape) && x.scalar_type() == dtype && x.device() == like.device(), name,
                    " is ", x.scalar_type(), " ", x.sym_sizes(), " on ", x.device(), ", expected ", dtype, " ",
                    c10::SymIntArrayRef(shape), " on ", like.device());
}

}  // namespace attn
