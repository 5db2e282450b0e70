// The registry of implementations of sparse attention, and the parts that a call's mask is divided into.
#include "attn/sparse/implementation.h"

#include <ATen/ATen.h>

namespace attn {

SparseRegistry& sparse_implementations() {
  static SparseRegistry registry("sparse_attention");
  return registry;
}

std::vector<std::vector<VisibleParts>> visible_parts_of(const SparseArguments& a) {
  const auto query_len = a.q.size(2), key_len = a.k.size(2);
  std::vector<std::vector<VisibleParts>> all;
  if (a.chosen_blocks) {
    // Each head has parts of its own for the chosen blocks (attn/sparse/chosen_parts.h). This part without keys comes before
    // them, so that the output of every query is initialized.
    all.push_back(visible_parts(a.pattern, a.causal, query_len, key_len, /*visible_keys=*/0));
  } else if (a.cu_seqlens) {
    const auto borders = a.cu_seqlens->to(at::kCPU).contiguous();
    const auto* const values = borders.const_data_ptr<int64_t>();
    auto& stages = all.emplace_back();
    for (int64_t s = 0; s + 1 < borders.numel(); ++s) {
      const auto length = values[s + 1] - values[s];
      if (length == 0) continue;
      const auto parts_of_sequence = visible_parts(a.pattern, a.causal, length, length, length);
      stages.resize(std::max(stages.size(), parts_of_sequence.size()));
      for (size_t stage = 0; stage < parts_of_sequence.size(); ++stage)
        for (auto part : parts_of_sequence[stage]) {
          part.query_begin += values[s];
          part.key_begin += values[s];
          stages[stage].push_back(part);
        }
    }
  } else if (a.key_lengths) {
    const auto lengths = a.key_lengths->to(at::kCPU).contiguous();
    for (int64_t b = 0; b < lengths.numel(); ++b)
      all.push_back(visible_parts(a.pattern, a.causal, query_len, key_len, lengths.const_data_ptr<int64_t>()[b]));
  } else {
    all.push_back(visible_parts(a.pattern, a.causal, query_len, key_len, key_len));
  }
  return all;
}

}  // namespace attn
