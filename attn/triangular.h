// Products with triangular matrices in which a structural zero hides what it stands beside, NaN included.
#pragma once

#include <ATen/core/Tensor.h>

namespace attn {

// t x for lower-triangular t [R,C,C] (zeros above the diagonal) and x [R,C,K]. A row of x with NaN makes those rows NaN that
// are not before it, and no other: as if 0 · NaN were 0 above the diagonal.
at::Tensor lower_triangular_product(const at::Tensor& t, const at::Tensor& x);

// The same for upper-triangular t: the rows that are not after it.
at::Tensor upper_triangular_product(const at::Tensor& t, const at::Tensor& x);

}  // namespace attn
