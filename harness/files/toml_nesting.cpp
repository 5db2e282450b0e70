// Counts the levels of brackets outside of strings and comments.
#include "harness/files/toml_nesting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "harness/text/errors.h"

namespace attnbench {
namespace {

// The position after the string that begins with the quote at `begin`: "…", '…', """…""" or '''…'''.
size_t end_of_string(std::string_view text, size_t begin) {
  const char quote = text[begin];
  const auto delimiter = text.substr(begin, 3) == std::string(3, quote) ? text.substr(begin, 3) : text.substr(begin, 1);
  for (auto i = begin + delimiter.size(); i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') ++i;
    else if (delimiter.size() == 1 && text[i] == '\n') return i;  // the parser refuses a string that is not closed
    else if (text.substr(i, delimiter.size()) == delimiter) return i + delimiter.size();
  }
  return text.size();
}

}  // namespace

void check_toml_nesting(const std::string& origin, std::string_view text) {
  constexpr int kMaxDepth = 64;
  int brackets = 0, dots = 0;  // open brackets and braces, and the dots since the last character that ends a key
  size_t line = 1;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const auto end = end_of_string(text, i);
      line += size_t(std::count(text.begin() + std::ptrdiff_t(i), text.begin() + std::ptrdiff_t(end), '\n'));
      i = end;
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '[' || c == '{') ++brackets;
    else if (c == ']' || c == '}') --brackets;
    else if (c == '.') ++dots;
    if (c == '\n' || c == '=' || c == ',') dots = 0;
    if (c == '\n') ++line;
    if (brackets > kMaxDepth || dots > kMaxDepth)
      throw UsageError(fmt::format("{}:{}: nested deeper than {} levels", origin, line, kMaxDepth));
    ++i;
  }
}

}  // namespace attnbench
