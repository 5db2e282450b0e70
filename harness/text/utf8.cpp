// Decodes characters, and tells how many columns of a terminal each takes.
#include "harness/text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace attnbench {
namespace {

struct Range {
  char32_t first, last;
};

constexpr Range kCombining[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x64B, 0x65F},   {0x1AB0, 0x1AFF},
                                {0x1DC0, 0x1DFF}, {0x200B, 0x200D}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0x4DBF},   {0x4E00, 0xA4CF},  {0xA960, 0xA97F},
                           {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF01, 0xFF60},  {0xFFE0, 0xFFE6},
                           {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

template <size_t count>
bool is_in(const Range (&ranges)[count], char32_t character) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range& range) { return character >= range.first && character <= range.last; });
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t begin) {
  const auto byte = [&](size_t i) { return uint8_t(text[begin + i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t bytes = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || begin + bytes > text.size()) return {kInvalidCodePoint, 1};
  char32_t value = byte(0) & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {kInvalidCodePoint, 1};
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  return value < smallest[bytes] || surrogate || value > 0x10FFFF ? CodePoint{kInvalidCodePoint, 1} : CodePoint{value, bytes};
}

size_t columns_of(char32_t character) {
  if (character < 0x300) return 1;
  return is_in(kCombining, character) ? 0 : is_in(kWide, character) ? 2 : 1;
}

}  // namespace attnbench
