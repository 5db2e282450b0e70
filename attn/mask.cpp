// Draws masks of a problem, and computes from a mask which pairs of queries and keys are visible.
#include "attn/mask.h"

#include <ATen/ATen.h>

namespace attn {

Mask Mask::from(const Problem& problem, const at::Generator& generator) {
  Mask mask;
  mask.causal = problem.causal;
  mask.pattern = problem.pattern;
  const auto& lengths = problem.key_lengths;
  if (lengths.kind == KeyLengthDistribution::Kind::uniform) {
    mask.key_lengths = at::randint(1, problem.key_len + 1, {problem.batch}, generator, at::kLong).to(problem.device);
  } else if (lengths.kind == KeyLengthDistribution::Kind::fixed) {
    mask.key_lengths = at::full({problem.batch}, lengths.length, at::kLong).to(problem.device);
  }
  if (const auto& packed = problem.packed; !packed.is_none()) {
    const auto borders =
        packed.lengths.empty()
            ? std::get<0>(at::randperm(problem.query_len - 1, generator, at::kLong).narrow(0, 0, packed.drawn - 1).add_(1).sort())
            : at::tensor(packed.lengths, at::kLong).cumsum(0).narrow(0, 0, packed.count() - 1);
    mask.cu_seqlens =
        at::cat({at::zeros({1}, at::kLong), borders, at::full({1}, problem.query_len, at::kLong)}).to(problem.device);
  }
  return mask;
}

Mask Mask::select(const at::Tensor& batch_index) const {
  Mask selected = *this;
  if (key_lengths) selected.key_lengths = key_lengths->index_select(0, batch_index);
  return selected;
}

std::optional<at::Tensor> Mask::hidden_keys(int64_t key_len) const {
  if (!key_lengths) return std::nullopt;
  const auto positions = at::arange(key_len, key_lengths->options());
  return (positions.unsqueeze(0) >= key_lengths->unsqueeze(1)).unsqueeze(1).unsqueeze(3);
}

std::optional<at::Tensor> Mask::hidden_pairs(int64_t query_len, int64_t key_len, at::Device device) const {
  std::optional<at::Tensor> hidden;
  if (!sees_all()) {
    const auto rows = at::arange(query_len, at::TensorOptions(at::kLong).device(device));
    return visible_pairs(rows, query_len, key_len).logical_not();
  }
  if (causal) {
    auto ones = at::ones({query_len, key_len}, at::TensorOptions(at::kBool).device(device));
    hidden = ones.triu_(1 + key_len - query_len);
  }
  if (key_lengths) {
    const auto by_length = hidden_keys(key_len)->transpose(2, 3);
    hidden = hidden ? hidden->logical_or(by_length) : by_length;
  }
  return hidden;
}

at::Tensor Mask::visible_pairs(const at::Tensor& rows, int64_t query_len, int64_t key_len) const {
  const auto keys = at::arange(key_len, rows.options()).view({1, 1, 1, -1});
  const auto places = rows.view({1, 1, -1, 1}) + (key_len - query_len);
  at::Tensor visible;
  if (cu_seqlens) {
    const auto ends = cu_seqlens->narrow(0, 1, cu_seqlens->size(0) - 1);
    const auto sequence = [&](const at::Tensor& positions) { return at::bucketize(positions, ends, false, /*right=*/true); };
    const auto begin = [&](const at::Tensor& sequences) { return cu_seqlens->index({sequences}); };
    const auto of_query = sequence(places), of_key = sequence(keys);
    visible = pattern.visible(places - begin(of_query), keys - begin(of_key)).logical_and(of_query == of_key);
  } else {
    visible = pattern.visible(places, keys);
  }
  if (causal) visible = visible.logical_and(keys <= places);
  if (key_lengths) visible = visible.logical_and(keys < key_lengths->view({-1, 1, 1, 1}));
  return visible;
}

std::optional<at::Tensor> Mask::empty_rows(int64_t query_len, int64_t key_len, at::Device device,
                                           const std::optional<at::Tensor>& hidden) const {
  std::optional<at::Tensor> empty;
  if (!pattern.is_all()) return (hidden ? hidden : hidden_pairs(query_len, key_len, device))->all(/*dim=*/3, /*keepdim=*/true);
  if (key_lengths) empty = key_lengths->eq(0).view({-1, 1, 1, 1});
  if (causal && query_len > key_len) {
    const auto rows = at::arange(query_len, at::TensorOptions(at::kLong).device(device));
    const auto early = rows.lt(query_len - key_len).view({1, 1, -1, 1});
    empty = empty ? empty->logical_or(early) : early;
  }
  return empty;
}

at::Tensor zero_where(const at::Tensor& x, const std::optional<at::Tensor>& where) {
  return where ? x.masked_fill(*where, 0) : x;
}

}  // namespace attn
