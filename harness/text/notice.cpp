// Prints to a stream, shortens very long lines, and ignores the errors of the stream.
#include "harness/text/notice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "harness/text/errors.h"
#include "harness/text/safe_text.h"

namespace attnbench {

namespace {

// The text with a note in place of the middle of each line that is longer than kMaxLineBytes.
std::string with_short_lines(std::string_view text) {
  constexpr size_t kMaxLineBytes = 2000, kKeptBytes = 800;
  const auto is_inside_character = [&](size_t i) { return i < text.size() && (uint8_t(text[i]) & 0xC0) == 0x80; };
  std::string shorter;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    if (end - begin > kMaxLineBytes) {
      auto from = begin + kKeptBytes, to = end - kKeptBytes;
      while (is_inside_character(from)) ++from;
      while (is_inside_character(to)) ++to;
      shorter +=
          fmt::format("{} … [{} bytes left out] … {}", text.substr(begin, from - begin), to - from, text.substr(to, end - to));
    } else {
      shorter += text.substr(begin, end - begin);
    }
    begin = end;
  }
  return shorter;
}

}  // namespace

void print_notice(std::string_view text, FILE* out) { print_styled(with_short_lines(safe_text(text, LineEnds::kept)), out); }

void print_error(const std::exception& error) { print_notice(fmt::format("attnbench: {}\n", error_text(error))); }

void print_styled(std::string_view text, FILE* out) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace attnbench
