#include "harness/schema/plain_json.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace attnbench {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Each function reads what begins at the current place and moves behind it. It returns whether it could.
class PlainParser {
 public:
  explicit PlainParser(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool document(Json& json) {
    if (!value(json, 0)) return false;
    skip_space();
    return at_ == end_;
  }

 private:
  using Members = std::vector<std::pair<std::string, Json>>;

  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  // Space and this character.
  bool character(char c) {
    skip_space();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool word(std::string_view expected, Json& json, Json meaning) {
    if (!std::string_view(at_, size_t(end_ - at_)).starts_with(expected)) return false;
    at_ += expected.size();
    json = std::move(meaning);
    return true;
  }

  bool value(Json& json, int depth) {
    constexpr int kMaxDepth = 32;
    skip_space();
    if (at_ == end_ || depth > kMaxDepth) return false;
    switch (*at_) {
      case '{': return object(json, depth);
      case '[': return array(json, depth);
      case '"': json = std::string(); return string(json.get_ref<std::string&>());
      case 't': return word("true", json, true);
      case 'f': return word("false", json, false);
      case 'n': return word("null", json, nullptr);
      default: return number(json);
    }
  }

  bool string(std::string& text) {
    if (!character('"')) return false;
    for (;;) {
      const auto* const begin = at_;
      while (at_ != end_ && *at_ != '"' && *at_ != '\\' && *at_ >= 0x20 && *at_ < 0x7F) ++at_;
      text.append(begin, at_);
      if (at_ == end_ || (*at_ != '\\' && *at_ != '"')) return false;
      if (*at_++ == '"') return true;
      if (!escape(text)) return false;
    }
  }

  bool escape(std::string& text) {
    constexpr std::string_view escapes = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    const auto found = at_ == end_ ? std::string_view::npos : escapes.find(*at_);
    if (found == std::string_view::npos) return false;
    text += meanings[found];
    ++at_;
    return true;
  }

  bool digits() {
    const auto* const begin = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return at_ != begin;
  }

  bool number(Json& json) {
    const auto* const begin = at_;
    const bool is_negative = *at_ == '-';
    if (is_negative) ++at_;
    const auto* const first = at_;
    if (!digits() || (*first == '0' && at_ - first > 1)) return false;
    bool is_whole = true;
    if (at_ != end_ && *at_ == '.') {
      is_whole = false;
      ++at_;
      if (!digits()) return false;
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      is_whole = false;
      if (++at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!digits()) return false;
    }
    if (!is_whole) return converted<double>(json, begin);
    return is_negative ? converted<int64_t>(json, begin) : converted<uint64_t>(json, begin);
  }

  // The number from `begin` to the current place.
  template <class Number>
  bool converted(Json& json, const char* begin) {
    Number number = 0;
    const auto [last, error] = std::from_chars(begin, at_, number);
    json = number;
    return error == std::errc() && last == at_;
  }

  bool array(Json& json, int depth) {
    ++at_;
    json = Json::array();
    auto& items = json.get_ref<Json::array_t&>();
    if (character(']')) return true;
    do {
      if (!value(items.emplace_back(), depth + 1)) return false;
    } while (character(','));
    return character(']');
  }

  bool object(Json& json, int depth) {
    ++at_;
    json = Json::object();
    if (character('}')) return true;
    Members members;
    members.reserve(depth == 0 ? 256 : 8);
    do {
      auto& [key, item] = members.emplace_back();
      skip_space();
      if (!string(key) || !character(':') || !value(item, depth + 1)) return false;
    } while (character(','));
    return character('}') && take(members, json.get_ref<Json::object_t&>());
  }

  // Inserting the members one by one would compare each key with all others.
  static bool take(Members& members, Json::object_t& object) {
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const auto& [key, item] : members) keys.emplace_back(key);
    std::sort(keys.begin(), keys.end());
    if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) return false;
    object.reserve(members.size());
    for (auto& [key, item] : members) object.emplace_back(std::move(key), std::move(item));
    return true;
  }

  const char *at_, *end_;
};

}  // namespace

std::optional<Json> parse_plain_json(std::string_view text) {
  Json json;
  if (!PlainParser(text).document(json)) return std::nullopt;
  return json;
}

}  // namespace attnbench
