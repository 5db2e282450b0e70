// Collects for each block the queries that chose it, so that a kernel reads the block once for all of them.
#include "attn/sparse/chosen_parts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace attn {
namespace {

// Adds the parts of the queries begin … end − 1 as one group. `blocks` has `count` checked numbers for each query; `any` has what
// all parts have in common, and the number of valid keys.
void add_group(const int64_t* blocks, int64_t count, int64_t begin, int64_t end, const VisiblePart& any, int64_t block,
               int64_t block_count, ChosenParts& to) {
  // For each block, the number of its queries, and the last of them, since a query may name the block again.
  std::vector<int64_t> sizes(size_t(block_count) + 1, 0), last(size_t(block_count), -1);
  const auto for_each_choice = [&](const auto& visit) {
    std::fill(last.begin(), last.end(), -1);
    for (auto i = begin; i < end; ++i)
      for (int64_t c = 0; c < count; ++c)
        if (const auto j = blocks[i * count + c]; j >= 0 && last[size_t(j)] != i) {
          last[size_t(j)] = i;
          visit(j, i);
        }
  };
  for_each_choice([&](int64_t j, int64_t) { ++sizes[size_t(j) + 1]; });
  const auto first = int64_t(to.queries.size());
  std::vector<int64_t> next(sizes);
  for (int64_t j = 0; j < block_count; ++j) next[size_t(j) + 1] += next[size_t(j)];
  to.queries.resize(size_t(first + next.back()));
  auto places = next;
  for_each_choice([&](int64_t j, int64_t i) { to.queries[size_t(first + places[size_t(j)]++)] = i; });
  auto& group = to.groups.emplace_back();
  for (int64_t j = 0; j < block_count; ++j) {
    auto part = any;
    part.key_begin = j * block;
    part.keys = std::min(block, any.keys - part.key_begin);
    part.rows = sizes[size_t(j) + 1];
    part.query_begin = first + next[size_t(j)];  // stands for the pointer to the queries until `to.queries` no longer grows
    if (part.rows > 0 && part.keys > 0) group.push_back(part);
  }
}

}  // namespace

std::vector<ChosenParts> chosen_parts(const SparseArguments& a, int64_t groups) {
  const auto blocks = a.chosen_blocks->to(at::kCPU).contiguous();
  const auto heads = blocks.size(1), length = blocks.size(2), count = blocks.size(3), key_len = a.k.size(2);
  const auto lengths = a.key_lengths ? a.key_lengths->to(at::kCPU).contiguous() : at::Tensor();
  const auto block_count = (key_len + a.block - 1) / a.block;
  if (blocks.numel() > 0) {
    const auto [min, max] = blocks.aminmax();
    TORCH_CHECK_VALUE(min.item<int64_t>() >= -1 && max.item<int64_t>() < block_count, "sparse_attention: chosen_blocks holds ",
                      min.item<int64_t>(), " to ", max.item<int64_t>(), ", expected -1 to ", block_count - 1, ", as ", key_len,
                      " keys have ", block_count, " blocks of ", a.block);
  }
  std::vector<ChosenParts> all(size_t(blocks.size(0) * heads));
  at::parallel_for(0, int64_t(all.size()), 1, [&](int64_t from, int64_t to) {
    for (auto index = from; index < to; ++index) {
      VisiblePart any;
      any.relation = VisiblePart::Relation::chosen;
      any.causal = a.causal;
      any.shift = key_len - length;
      any.keys = lengths.defined() ? lengths.const_data_ptr<int64_t>()[index / heads] : key_len;
      auto& parts = all[size_t(index)];
      for (int64_t group = 0; group < groups; ++group)
        add_group(blocks.const_data_ptr<int64_t>() + index * length * count, count, length * group / groups,
                  length * (group + 1) / groups, any, a.block, block_count, parts);
      for (auto& group : parts.groups)
        for (auto& part : group) {
          part.queries = parts.queries.data() + part.query_begin;
          part.query_begin = 0;
        }
    }
  });
  return all;
}

}  // namespace attn
