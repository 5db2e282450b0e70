#include "harness/schema/json.h"

#include "harness/schema/plain_json.h"

namespace attnbench {

Json parse_json(std::string_view text) {
  if (auto plain = parse_plain_json(text)) return *std::move(plain);
  constexpr int kMaxDepth = 64;
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

std::string json_error_text(const Json::exception& error) {
  const std::string message = error.what();
  const auto end = message.find("] ");
  return message.starts_with("[json.exception.") && end != std::string::npos ? message.substr(end + 2) : message;
}

}  // namespace attnbench
