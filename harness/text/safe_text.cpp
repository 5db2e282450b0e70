#include "harness/text/safe_text.h"

#include <cstddef>
#include <cstdint>

namespace attnbench {
namespace {

constexpr char32_t kInvalid = 0xFFFFFFFF;

struct CodePoint {
  char32_t value;  // kInvalid if the bytes are not UTF-8
  size_t bytes;
};

// The code point at `begin`. Overlong forms, surrogates and values above U+10FFFF are not UTF-8 (RFC 3629).
CodePoint code_point_at(std::string_view text, size_t begin) {
  const auto byte = [&](size_t i) { return uint8_t(text[begin + i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t bytes = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || begin + bytes > text.size()) return {kInvalid, 1};
  char32_t value = byte(0) & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {kInvalid, 1};
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  return value < smallest[bytes] || surrogate || value > 0x10FFFF ? CodePoint{kInvalid, 1} : CodePoint{value, bytes};
}

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
    if (value == kInvalid) safe += "\xEF\xBF\xBD";
    else if (value == '\n' && line_ends == LineEnds::kept) safe += '\n';
    else if (is_unsafe(value)) safe += ' ';
    else safe += text.substr(i, bytes);
    i += bytes;
  }
  return safe;
}

}  // namespace attnbench
