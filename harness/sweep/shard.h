// A part of a sweep's cases, for machines that share a sweep.
#pragma once

#include <cstddef>
#include <string>

namespace attnbench {

// "2/8": the second of eight parts: every eighth case, beginning with the second.
struct Shard {
  size_t number = 1, count = 1;

  // Empty text is all cases. Throws UsageError for anything that is not i/n with 1 ≤ i ≤ n.
  static Shard parse(const std::string& text);
  bool has(size_t index) const { return index % count == number - 1; }
  bool is_all() const { return count == 1; }
};

}  // namespace attnbench
