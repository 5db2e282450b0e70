// Finds the known name with the smallest edit distance.
#include "harness/text/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace attnbench {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j)
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row.back();
}

}  // namespace

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  std::string text;
  const auto distance = [&](const std::string& other) { return edit_distance(name, other); };
  const auto nearest =
      std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  if (nearest != known.end() && distance(*nearest) <= std::max<size_t>(2, name.size() / 3))
    text = fmt::format("; did you mean '{}'?", *nearest);
  return text + (known.empty() ? "; none are known" : fmt::format("; known: {}", fmt::join(known, ", ")));
}

}  // namespace attnbench
