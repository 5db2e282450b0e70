// Products with triangular matrices in which a zero outside the triangle hides the factor that it meets, also when that is NaN.
#pragma once

#include <ATen/core/Tensor.h>

namespace attn {

// t x for lower-triangular t [R,C,C] (zeros above the diagonal) and x [R,C,K], computed as if 0 · NaN were 0 above the diagonal:
// a row of x with a NaN makes the result NaN in that row and the later ones, and in no other.
at::Tensor lower_triangular_product(const at::Tensor& t, const at::Tensor& x);

// The same for upper-triangular t, where a row of x with a NaN reaches its own row and the earlier ones.
at::Tensor upper_triangular_product(const at::Tensor& t, const at::Tensor& x);

}  // namespace attn
