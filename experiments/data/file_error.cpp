// Writes the messages about wrong files.
#include "experiments/data/file_error.h"

#include <c10/util/Exception.h>

namespace experiments {

void fail_at(const std::string& path, uint64_t offset, const std::string& found, const std::string& expected) {
  TORCH_CHECK_VALUE(false, path, ": byte ", offset, ": found ", found, ", expected ", expected);
}

std::string hex_text(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    if (!text.empty()) text += ' ';
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
  return text;
}

std::string quoted_text(std::string_view text) {
  constexpr size_t kMaxLength = 60;
  std::string shown = "'";
  for (const auto character : text.substr(0, kMaxLength)) shown += character >= ' ' && character <= '~' ? character : '?';
  return shown + (text.size() > kMaxLength ? "…'" : "'");
}

}  // namespace experiments
