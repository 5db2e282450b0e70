// Parses JSON with RapidJSON, which takes a fraction of the time, and with nlohmann's parser where that refuses a text.
#include "harness/schema/json.h"

#include <rapidjson/reader.h>

#include <bitset>
#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace attnbench {
namespace {

constexpr int kMaxDepth = 64;

// RapidJSON's reader calls a function of this class for each part that it finds in a text, and reads on if the function returns
// true.
class ValueBuilder {
 public:
  Json take() { return std::move(root_); }

  bool Null() { return add(nullptr); }
  bool Bool(bool value) { return add(value); }
  bool String(const char* text, rapidjson::SizeType size, bool) { return add(std::string(text, size)); }

  // Whole numbers that fit into 64 bits are integers, as nlohmann's parser has them.
  bool RawNumber(const char* text, rapidjson::SizeType size, bool) {
    const std::string_view digits(text, size);
    if (digits.find_first_of(".eE") == std::string_view::npos)
      if (digits.front() == '-' ? add_number<int64_t>(digits) : add_number<uint64_t>(digits)) return true;
    return add_number<double>(digits);
  }

  bool StartObject() { return open(Json::value_t::object); }
  bool Key(const char* text, rapidjson::SizeType size, bool) {
    key_.assign(text, size);
    return true;
  }
  bool EndObject(rapidjson::SizeType) { return close(); }
  bool StartArray() { return open(Json::value_t::array); }
  bool EndArray(rapidjson::SizeType) { return close(); }

  // The reader is told to hand over numbers as text, so that it calls none of these.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }

 private:
  template <class Number>
  bool add_number(std::string_view digits) {
    Number number{};
    const auto* end = digits.data() + digits.size();
    const auto [read_to, error] = std::from_chars(digits.data(), end, number);
    return error == std::errc() && read_to == end && add(number);
  }

  bool add(Json value) {
    place_of_next() = std::move(value);
    return true;
  }

  Json& place_of_next() {
    if (open_.empty()) return root_;
    auto& [container, names] = open_.back();
    if (container->is_array()) return container->emplace_back();
    auto& members = container->get_ref<Json::object_t&>();
    auto is_noted = names[std::hash<std::string>()(key_) % names.size()];
    if (is_noted) return members[key_];  // of several members of the same name, the last one counts
    is_noted = true;
    return members.emplace_back(key_, nullptr).second;
  }

  bool open(Json::value_t type) {
    if (open_.size() >= kMaxDepth) return false;
    auto& container = place_of_next() = type;
    // An object copies its names whenever it grows, so that of a record, which has many, is made large enough.
    if (type == Json::value_t::object) container.get_ref<Json::object_t&>().reserve(open_.empty() ? kMembersOfRecord : 4);
    open_.push_back({&container, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  // A search through the members of an object for each name takes long in records. So the hashes of the names are noted, and only
  // a name whose hash was noted before is searched for.
  struct Open {
    Json* container;
    std::bitset<2048> names;
  };
  static constexpr size_t kMembersOfRecord = 192;

  Json root_;
  std::vector<Open> open_;
  std::string key_;
};

// The value of the text, or nothing if RapidJSON cannot read it. nlohmann's parser takes 2.2 times as long for records, also if
// it calls the functions of ValueBuilder, and `attnbench table` of 5,000 records would then take 1.37 times as much processor
// time.
std::optional<Json> parse_fast(std::string_view text) {
  using namespace rapidjson;
  constexpr unsigned kFlags = kParseInsituFlag | kParseNumbersAsStringsFlag | kParseValidateEncodingFlag;
  // The reader writes into the text. It ends at a byte of value 0, but at the first byte of a character of UTF-8 it reads the up
  // to three that should follow, whether or not the text ends before them, so that three more bytes of value 0 are needed.
  std::string copy;
  copy.reserve(text.size() + 3);
  copy.append(text).append(3, '\0');
  InsituStringStream stream(copy.data());
  ValueBuilder builder;
  const auto result = Reader().Parse<kFlags>(stream, builder);
  if (result.IsError()) return std::nullopt;
  return builder.take();
}

// Throws JsonError with the position and the words of nlohmann's parser.
Json parse_with_errors(std::string_view text) {
  const auto check_depth = [](int depth, Json::parse_event_t event, const Json&) {
    const bool begins = event == Json::parse_event_t::array_start || event == Json::parse_event_t::object_start;
    if (begins && depth >= kMaxDepth) throw JsonError("JSON nested deeper than " + std::to_string(kMaxDepth) + " levels");
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check_depth);
  } catch (const Json::parse_error& error) {
    // "parse error at line 1, column 5: syntax error while parsing …": the position is reported separately.
    const auto message = json_error_text(error);
    const auto colon = message.find(": ");
    throw JsonError(colon == std::string::npos ? message : message.substr(colon + 2), error.byte);
  } catch (const Json::exception& error) {  // a number that is too large
    throw JsonError(json_error_text(error));
  }
}

}  // namespace

Json parse_json(std::string_view text) {
  auto value = parse_fast(text);
  return value ? std::move(*value) : parse_with_errors(text);
}

std::string json_error_text(const Json::exception& error) {
  const std::string message = error.what();
  const auto end = message.find("] ");
  return message.starts_with("[json.exception.") && end != std::string::npos ? message.substr(end + 2) : message;
}

}  // namespace attnbench
