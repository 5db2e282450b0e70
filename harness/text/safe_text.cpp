// Replaces control characters and invalid UTF-8.
#include "harness/text/safe_text.h"

#include <cstddef>

#include "harness/text/utf8.h"

namespace attnbench {
namespace {

bool is_unsafe(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string safe_text(std::string_view text, LineEnds line_ends) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto [value, bytes] = code_point_at(text, i);
    if (value == kInvalidCodePoint) safe += "\xEF\xBF\xBD";
    else if (value == '\n' && line_ends == LineEnds::kept) safe += '\n';
    else if (is_unsafe(value)) safe += ' ';
    else safe += text.substr(i, bytes);
    i += bytes;
  }
  return safe;
}

}  // namespace attnbench
