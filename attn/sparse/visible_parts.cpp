// Divides the visible pairs of each kind of pattern into parts.
#include "attn/sparse/visible_parts.h"

#include <algorithm>

namespace attn {
namespace {

constexpr auto kUnbounded = VisiblePart::kUnbounded;

// A part for each remainder of positions divided by `step`: the queries and keys with this remainder, as a band with the bounds
// `low` and `high`, counted in steps. Remainders that no query has are left out.
VisibleParts bands_of_remainders(const VisiblePart& all, int64_t step, int64_t low, int64_t high) {
  VisibleParts parts;
  for (int64_t first_row = 0; first_row < std::min(step, all.rows); ++first_row) {
    auto part = all;
    const auto place = first_row + all.shift, remainder = (place % step + step) % step;
    part.query_begin = first_row;
    part.key_begin = remainder;
    part.step = step;
    part.rows = (all.rows - first_row + step - 1) / step;
    part.keys = remainder < all.keys ? (all.keys - remainder + step - 1) / step : 0;
    part.shift = (place - remainder) / step;
    part.low = low;
    part.high = high;
    parts.push_back(part);
  }
  return parts;
}

bool has_pairs(const VisiblePart& part) {
  Interval one, other;
  part.keys_that_are_seen(0, part.rows, one, other);
  return !one.is_empty() || !other.is_empty();
}

}  // namespace

std::vector<VisibleParts> visible_parts(const Pattern& pattern, bool causal, int64_t query_len, int64_t key_len,
                                        int64_t visible_keys) {
  VisiblePart all;
  all.rows = query_len;
  all.keys = visible_keys;
  all.shift = key_len - query_len;
  all.causal = causal;
  all.first = std::max(pattern.first, pattern.global);
  all.global_rows = pattern.global;
  const auto window = [&](VisiblePart part, int64_t size) {
    part.low = causal ? 0 : 1 - size;
    part.high = size;
    return part;
  };
  switch (pattern.kind) {
    case Pattern::Kind::all: break;
    case Pattern::Kind::none: all.low = all.high = 0; break;
    case Pattern::Kind::window: all = window(all, pattern.size); break;
    case Pattern::Kind::strided: {
      std::vector<VisibleParts> stages{{window(all, pattern.size)}};
      VisibleParts beyond;
      for (auto& part : bands_of_remainders(all, pattern.size, causal ? 1 : -kUnbounded, kUnbounded)) {
        part.without_own = !causal;
        if (has_pairs(part)) beyond.push_back(part);
      }
      if (!beyond.empty()) stages.push_back(std::move(beyond));
      return stages;
    }
    case Pattern::Kind::dilated: return {bands_of_remainders(all, pattern.step, causal ? 0 : 1 - pattern.size, pattern.size)};
    case Pattern::Kind::block: {
      auto own = all, earlier = all;
      own.relation = VisiblePart::Relation::block;
      own.block = pattern.size;
      earlier.relation = VisiblePart::Relation::summary;
      earlier.block = pattern.size;
      earlier.columns = pattern.step;
      const auto whole = visible_keys / pattern.size, rest = visible_keys % pattern.size;
      earlier.keys = whole * pattern.step + std::max<int64_t>(0, rest - (pattern.size - pattern.step));
      std::vector<VisibleParts> stages{{own}};
      if (has_pairs(earlier)) stages.push_back({earlier});
      return stages;
    }
  }
  return {{all}};
}

double count_pairs(const std::vector<VisibleParts>& parts) {
  double pairs = 0;
  for (const auto& stage : parts)
    for (const auto& part : stage)
      for (int64_t u = 0; u < part.keys; ++u) {
        Interval one, other;
        part.rows_that_see(u, 0, part.rows, one, other);
        pairs += double(one.size() + other.size());
      }
  return pairs;
}

}  // namespace attn
