// Reads the characters of UTF-8 text.
#pragma once

#include <cstddef>
#include <string_view>

namespace attnbench {

inline constexpr char32_t kInvalidCodePoint = 0xFFFFFFFF;

struct CodePoint {
  char32_t value;  // kInvalidCodePoint if the bytes are not UTF-8
  size_t bytes;    // 1 to 4; 1 if the bytes are not UTF-8
};

// The code point that begins at byte `begin`, which lies within the text. Overlong forms, surrogates and values above U+10FFFF
// are not UTF-8 (RFC 3629).
CodePoint code_point_at(std::string_view text, size_t begin);

// How many columns of a terminal the character takes: 2 for the blocks of wide characters of Unicode Standard Annex #11 and for
// pictographs, 0 for marks that combine with the character before, and 1 for every other one.
size_t columns_of(char32_t character);

}  // namespace attnbench
