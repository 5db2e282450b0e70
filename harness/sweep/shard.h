// A part of the cases of a sweep, for machines that share it.
#pragma once

#include <cstddef>
#include <string>

namespace attnbench {

// "2/8" is the second of eight parts: every eighth case, beginning with the second.
struct Shard {
  size_t number = 1, count = 1;

  // Empty text stands for all cases. Throws UsageError for other text that is not i/n with 1 ≤ i ≤ n.
  static Shard parse(const std::string& text);
  bool has(size_t index) const { return index % count == number - 1; }
  bool is_all() const { return count == 1; }
};

}  // namespace attnbench
