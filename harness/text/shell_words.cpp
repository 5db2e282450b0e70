// Quotes the words that a shell would interpret.
#include "harness/text/shell_words.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace attnbench {
namespace {

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "_-./=:,+@";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || kPlain.find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted_word = "'";
  for (const char c : word) quoted_word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted_word + "'";
}

}  // namespace

std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

}  // namespace attnbench
