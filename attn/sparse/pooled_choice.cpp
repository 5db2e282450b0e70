// Computes products with mean keys in float32, and again in float64 where they are too close to decide.
#include "attn/sparse/pooled_choice.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace attn {
namespace {

using at::Tensor;

// How many bytes of products are in memory at once.
constexpr int64_t kProductBytes = int64_t{16} << 20;

// Writes to `to` the indices of the `count` largest of values[0 … size − 1] except that at the index `without`, the largest
// first; of equal values the one with the lower index comes first. If there are fewer values, the rest is −1. Returns the
// difference of the smallest value that is chosen and the largest that is not, or ∞ if there is none.
template <class T>
T largest_of(const T* values, int64_t size, int64_t without, int64_t count, int64_t* to) {
  std::fill(to, to + count, -1);
  T next = -INFINITY;  // the largest value that is not chosen
  int64_t found = 0;
  for (int64_t j = 0; j < size; ++j) {
    if (j == without) continue;
    const T value = values[j];
    if (found == count && !(count > 0 && value > values[to[count - 1]])) {
      next = std::max(next, value);
      continue;
    }
    if (found == count) next = std::max(next, values[to[count - 1]]);
    auto place = found < count ? found++ : count - 1;
    for (; place > 0 && value > values[to[place - 1]]; --place) to[place] = to[place - 1];
    to[place] = j;
  }
  return found < count || count == 0 || next == -INFINITY ? T(INFINITY) : values[to[count - 1]] - next;
}

double dot(const double* x, const double* y, int64_t size) {
  double sum = 0;
  for (int64_t d = 0; d < size; ++d) sum += x[d] * y[d];
  return sum;
}

}  // namespace

Tensor pooled_blocks(const Tensor& x, int64_t block, const std::optional<Tensor>& key_lengths, at::ScalarType dtype) {
  const auto length = x.size(2), blocks = (length + block - 1) / block;
  auto values = x.to(dtype);
  const auto options = x.options().dtype(at::kLong);
  auto valid = at::full({x.size(0)}, length, options);
  if (key_lengths) {
    valid = *key_lengths;
    values = values.masked_fill((at::arange(length, options).unsqueeze(0) >= valid.unsqueeze(1)).unsqueeze(1).unsqueeze(3), 0);
  }
  if (blocks * block > length) values = at::constant_pad_nd(values, {0, 0, 0, blocks * block - length});
  const auto sums = values.view({x.size(0), x.size(1), blocks, block, x.size(3)}).sum(3);
  const auto counts = (valid.unsqueeze(1) - at::arange(blocks, options) * block).clamp(1, block);  // [B,blocks]
  return sums / counts.unsqueeze(1).unsqueeze(3);
}

Tensor choose_blocks(const Tensor& q, const Tensor& k, bool causal, const std::optional<Tensor>& key_lengths, int64_t block,
                     int64_t count) {
  const at::NoGradGuard no_gradients;
  const auto batch = q.size(0), heads = q.size(1), length = q.size(2), dim = q.size(3), key_len = k.size(2);
  const auto exact =
      pooled_blocks(k.to(at::kCPU), block, key_lengths ? std::optional(key_lengths->to(at::kCPU)) : std::nullopt, at::kDouble);
  const auto blocks = exact.size(2), sharing = heads / k.size(1);
  const auto rounded = exact.to(at::kFloat);
  const auto queries = q.to(at::kCPU);
  const auto lengths = key_lengths ? key_lengths->to(at::kCPU).contiguous() : Tensor();
  auto chosen = at::empty({batch, heads, length, count + 1}, at::kLong);
  if (chosen.numel() == 0 || blocks == 0) return chosen.fill_(-1).to(q.device());
  // The largest length of a mean key, for the bound of the error of products.
  const auto norms = rounded.norm(2, -1).amax(-1).contiguous();  // [B,G]
  auto* const to = chosen.data_ptr<int64_t>();
  const auto rows_at_once = std::max<int64_t>(1, kProductBytes / 4 / std::max<int64_t>(1, batch * heads * blocks));
  for (int64_t first = 0; first < length; first += rows_at_once) {
    const auto rows = std::min(rows_at_once, length - first);
    const auto part = queries.narrow(2, first, rows).to(at::kFloat).contiguous();
    // The queries of heads that share keys are rows of one product.
    const auto products =
        at::matmul(part.view({batch, heads / sharing, sharing * rows, dim}), rounded.transpose(2, 3)).contiguous();
    const auto* const values = products.const_data_ptr<float>();
    const auto* const of_queries = part.const_data_ptr<float>();
    at::parallel_for(0, batch * heads * rows, 64, [&](int64_t begin, int64_t end) {
      std::vector<double> precise(static_cast<size_t>(blocks)), query(static_cast<size_t>(dim));
      for (auto r = begin; r < end; ++r) {
        const auto head = r / rows, entry = head / heads, i = first + r % rows, place = i + key_len - length;
        const auto valid = lengths.defined() ? lengths.const_data_ptr<int64_t>()[entry] : key_len;
        const auto own = place < 0 || place / block * block >= valid ? -1 : place / block;
        const auto valid_blocks = (valid + block - 1) / block;
        const auto candidates = causal ? std::min(valid_blocks, std::max<int64_t>(0, place / block)) : valid_blocks;
        auto* const row = to + (head * length + i) * (count + 1);
        row[0] = own;
        double square = 0;
        for (int64_t d = 0; d < dim; ++d) square += double(of_queries[r * dim + d]) * of_queries[r * dim + d];
        const auto of_keys = entry * (heads / sharing) + head % heads / sharing;
        // The error of a product, of rounding its factors to float32 and of the sum in float32, is at most `bound`.
        const auto bound = 2 * double(dim + 2) * 6e-8 * std::sqrt(square) * norms.const_data_ptr<float>()[of_keys];
        if (!(largest_of(values + r * blocks, candidates, own, count, row + 1) <= 2 * bound)) continue;
        const auto original = queries[entry][head % heads][i].to(at::kDouble).contiguous();
        for (int64_t j = 0; j < candidates; ++j)
          precise[size_t(j)] =
              dot(original.const_data_ptr<double>(), exact.const_data_ptr<double>() + (of_keys * blocks + j) * dim, dim);
        largest_of(precise.data(), candidates, own, count, row + 1);
      }
    });
  }
  return chosen.to(q.device());
}

}  // namespace attn
