// A shard: one of several parts of a sweep, so that several machines can share its cases.
#pragma once

#include <cstddef>
#include <string>

namespace attnbench {

// The shard "2/8" is the second of eight parts: every eighth case, beginning with the second.
struct Shard {
  size_t number = 1, count = 1;

  // Reads "i/n" with 1 ≤ i ≤ n, or empty text, which stands for all cases. Throws UsageError for any other text.
  static Shard parse(const std::string& text);
  // Whether the shard has the case with this index, which counts from 0.
  bool has(size_t index) const { return index % count == number - 1; }
  bool is_all() const { return count == 1; }
};

}  // namespace attnbench
