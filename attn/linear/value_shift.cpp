// Takes the median of three means of a head's values, in an order that does not depend on the threads.
#include "attn/linear/value_shift.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace attn {
namespace {

using at::Tensor;

constexpr int64_t kParts = 3;
constexpr int64_t kMinPart = 64;   // positions; shorter sequences are one part
constexpr int64_t kMaxPart = 704;  // positions that are read of a part; the mean of more would be hardly nearer

// Where the parts of a sequence lie, which are means of `size` positions and begin `step` positions apart.
struct Parts {
  explicit Parts(int64_t length)
      : count(length < kParts * kMinPart ? 1 : kParts), step(length / count), size(std::min(step, kMaxPart)) {}
  int64_t count, step, size;
};

template <class T>
T median(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

// Writes the shift [M] of one head, whose values are v[t · row_stride + m · column_stride]. The sums are taken in the same order
// whatever the strides are.
template <class E, class T>
void shift_of_head(const E* v, int64_t length, int64_t row_stride, int64_t columns, int64_t column_stride, T* to) {
  std::fill(to, to + columns, T(0));
  if (length == 0) return;
  const Parts parts(length);
  std::vector<T> means(size_t(parts.count * columns));
  for (int64_t part = 0; part < parts.count; ++part) {
    T* sums = means.data() + part * columns;
    for (int64_t t = part * parts.step; t < part * parts.step + parts.size; ++t) {
      const E* row = v + t * row_stride;
      if (column_stride == 1) {
        for (int64_t m = 0; m < columns; ++m) sums[m] += static_cast<T>(row[m]);
      } else {
        for (int64_t m = 0; m < columns; ++m) sums[m] += static_cast<T>(row[m * column_stride]);
      }
    }
    for (int64_t m = 0; m < columns; ++m) sums[m] = std::isfinite(sums[m]) ? sums[m] / static_cast<T>(parts.size) : T(0);
  }
  const T* a = means.data();
  for (int64_t m = 0; m < columns; ++m) to[m] = parts.count == 1 ? a[m] : median(a[m], a[m + columns], a[m + 2 * columns]);
}

Tensor shift_on_cpu(const Tensor& v, const std::optional<Tensor>& key_lengths, at::ScalarType dtype) {
  const int64_t batch = v.size(0), heads = v.size(1), length = v.size(2), columns = v.size(3);
  const auto shift = at::empty({batch, heads, columns}, v.options().dtype(dtype));
  const auto lengths = key_lengths ? key_lengths->contiguous() : Tensor();
  const int64_t reads = std::max<int64_t>(1, std::min(length, kParts * kMaxPart) * columns);  // of a head
  const int64_t grain = std::max<int64_t>(1, 32768 / reads);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, v.scalar_type(), "value_shift", [&] {
    using E = scalar_t;
    const E* data = v.const_data_ptr<E>();
    AT_DISPATCH_FLOATING_TYPES(dtype, "value_shift", [&] {
      using T = scalar_t;
      T* to = shift.mutable_data_ptr<T>();
      at::parallel_for(0, batch * heads, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t b = i / heads, h = i % heads;
          const auto visible = lengths.defined() ? std::clamp<int64_t>(lengths.const_data_ptr<int64_t>()[b], 0, length) : length;
          shift_of_head<E, T>(data + b * v.stride(0) + h * v.stride(1), visible, v.stride(2), columns, v.stride(3),
                              to + i * columns);
        }
      });
    });
  });
  return shift;
}

Tensor finite_or_zero(const Tensor& x) { return at::where(at::isfinite(x), x, at::zeros({}, x.options())); }

// The means of the parts [B,H,parts,M] of values [B,H,T,M].
Tensor means_of(const Tensor& v, const Parts& parts, const std::optional<Tensor>& key_lengths, at::ScalarType dtype) {
  const auto values = v.unfold(2, parts.size, parts.step).narrow(2, 0, parts.count);  // [B,H,parts,M,size]
  if (!key_lengths) return finite_or_zero(values.sum(4, /*keepdim=*/false, dtype).div_(double(parts.size)));
  const auto begins = at::arange(parts.count, key_lengths->options()).mul_(parts.step);
  const auto counts = (key_lengths->view({-1, 1}) - begins).clamp(0, parts.size);  // [B,parts]: visible values of each part
  const auto visible = at::arange(parts.size, key_lengths->options()) < counts.view({-1, 1, parts.count, 1, 1});
  const auto sums = at::where(visible, values, at::zeros({}, values.options())).sum(4, /*keepdim=*/false, dtype);
  const auto means = finite_or_zero(sums / counts.clamp_min(1).view({-1, 1, parts.count, 1}));
  // A part without visible values counts as the first one, which has some unless all keys are hidden.
  return at::where((counts > 0).view({-1, 1, parts.count, 1}), means, means.narrow(2, 0, 1));
}

// The parts are those of all values, visible or not, because the host does not know the lengths.
Tensor shift_on_device(const Tensor& v, const std::optional<Tensor>& key_lengths, at::ScalarType dtype) {
  if (v.numel() == 0) return at::zeros({v.size(0), v.size(1), v.size(3)}, v.options().dtype(dtype));
  const Parts parts(v.size(2));
  const auto means = means_of(v, parts, key_lengths, dtype);
  if (parts.count == 1) return means.squeeze(2);
  const auto a = means.select(2, 0), b = means.select(2, 1), c = means.select(2, 2);
  return at::maximum(at::minimum(a, b), at::minimum(at::maximum(a, b), c));
}

}  // namespace

Tensor value_shift(const Tensor& v, const std::optional<Tensor>& key_lengths, at::ScalarType dtype) {
  return v.is_cpu() ? shift_on_cpu(v, key_lengths, dtype) : shift_on_device(v, key_lengths, dtype);
}

}  // namespace attn
