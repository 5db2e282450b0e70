// Zeroes what is outside the triangle, and gives NaN to the rows that see a NaN.
#include "attn/triangular.h"

#include <ATen/ATen.h>

#include <limits>

namespace attn {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// bool [R,C,1], true for rows that contain a NaN.
at::Tensor rows_with_nan(const at::Tensor& x) { return x.sum(-1, /*keepdim=*/true).isnan(); }

}  // namespace

at::Tensor lower_triangular_product(const at::Tensor& t, const at::Tensor& x) {
  const auto bad = rows_with_nan(x);
  const auto reached = bad.to(at::kByte).cumsum(-2, at::kInt).gt(0);
  return at::matmul(t, x.masked_fill(bad, 0)).masked_fill_(reached, kNaN);
}

at::Tensor upper_triangular_product(const at::Tensor& t, const at::Tensor& x) {
  const auto bad = rows_with_nan(x);
  const auto reached = bad.flip({-2}).to(at::kByte).cumsum(-2, at::kInt).gt(0).flip({-2});
  return at::matmul(t, x.masked_fill(bad, 0)).masked_fill_(reached, kNaN);
}

}  // namespace attn
