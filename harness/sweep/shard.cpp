// Parses shards such as 2/4.
#include "harness/sweep/shard.h"

#include <fmt/format.h>

#include <charconv>

#include "harness/text/errors.h"

namespace attnbench {

Shard Shard::parse(const std::string& text) {
  Shard shard;
  if (text.empty()) return shard;
  const auto slash = text.find('/');
  const auto number = [&](size_t begin, size_t end, size_t& value) {
    const auto [stopped, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    return error == std::errc{} && stopped == text.data() + end;
  };
  if (slash == std::string::npos || !number(0, slash, shard.number) || !number(slash + 1, text.size(), shard.count) ||
      shard.number < 1 || shard.number > shard.count)
    throw UsageError(fmt::format("shard = '{}', expected i/n with i from 1 to n, such as 2/8", text));
  return shard;
}

}  // namespace attnbench
