#include "attn/linear/value_shift.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace attn {
namespace {

using at::Tensor;

constexpr int64_t kParts = 3;
constexpr int64_t kMinPart = 64;   // positions; shorter sequences are one part
constexpr int64_t kMaxPart = 704;  // positions that are read of a part; the mean of more would be hardly nearer

Tensor finite_or_zero(const Tensor& x) { return at::where(at::isfinite(x), x, at::zeros({}, x.options())); }

// The means of the parts [B,H,parts,M] from the values [B,H,parts,M,size] of parts that begin `step` positions apart.
Tensor means_of(const Tensor& values, int64_t step, const std::optional<Tensor>& key_lengths, at::ScalarType dtype) {
  const auto parts = values.size(2), size = values.size(4);
  if (!key_lengths) return finite_or_zero(values.sum(4, /*keepdim=*/false, dtype).div_(double(size)));
  const auto begins = at::arange(parts, key_lengths->options()).mul_(step);
  const auto counts = (key_lengths->view({-1, 1}) - begins).clamp(0, size);  // [B,parts]: visible values of each part
  const auto visible = at::arange(size, key_lengths->options()) < counts.view({-1, 1, parts, 1, 1});
  const auto sums = at::where(visible, values, at::zeros({}, values.options())).sum(4, /*keepdim=*/false, dtype);
  const auto means = finite_or_zero(sums / counts.clamp_min(1).view({-1, 1, parts, 1}));
  // A part without visible values counts as the first one, which has some unless all keys are hidden.
  return at::where((counts > 0).view({-1, 1, parts, 1}), means, means.narrow(2, 0, 1));
}

}  // namespace

Tensor value_shift(const Tensor& v, const std::optional<Tensor>& key_lengths, at::ScalarType dtype) {
  const auto length = v.size(2);
  if (v.numel() == 0) return at::zeros({v.size(0), v.size(1), v.size(3)}, v.options().dtype(dtype));
  if (key_lengths && v.is_cpu()) {  // needs no copy of the values; on a GPU it would have to wait for the lengths
    std::vector<Tensor> shifts;
    for (int64_t b = 0; b < v.size(0); ++b) {
      const auto visible = std::clamp<int64_t>(key_lengths->select(0, b).item<int64_t>(), 0, length);
      shifts.push_back(value_shift(v.narrow(0, b, 1).narrow(2, 0, visible), {}, dtype));
    }
    return at::cat(shifts);
  }
  const auto parts = length < kParts * kMinPart ? int64_t{1} : kParts;
  const auto step = length / parts, size = std::min(step, kMaxPart);
  const auto means = means_of(v.unfold(2, size, step).narrow(2, 0, parts), step, key_lengths, dtype);
  if (parts == 1) return means.squeeze(2);
  const auto a = means.select(2, 0), b = means.select(2, 1), c = means.select(2, 2);
  return at::maximum(at::minimum(a, b), at::minimum(at::maximum(a, b), c));
}

}  // namespace attn
