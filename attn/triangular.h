// Products with triangular matrices in which the zeros outside the triangle hide even NaN entries of the other factor.
#pragma once

#include <ATen/core/Tensor.h>

namespace attn {

// t x [R,C,K] for lower-triangular t [R,C,C] (zeros above the diagonal) and x [R,C,K], computed as if 0 · NaN were 0 above the
// diagonal: a NaN in a row of x makes that row and all later rows of the result NaN, and no other row.
at::Tensor lower_triangular_product(const at::Tensor& t, const at::Tensor& x);

// The same for upper-triangular t: a NaN in a row of x makes that row and all earlier rows of the result NaN, and no other row.
at::Tensor upper_triangular_product(const at::Tensor& t, const at::Tensor& x);

}  // namespace attn
