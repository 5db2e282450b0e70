// The JSON type of the whole harness, and the parser of JSON text that comes from elsewhere.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace attnbench {

using Json = nlohmann::ordered_json;

// Text that is not JSON.
struct JsonError : std::invalid_argument {
  JsonError(const std::string& message, size_t where) : std::invalid_argument(message), position(where) {}
  size_t position;  // of the character that is wrong, from 1; in text of one line this is its column
};

// Throws JsonError for text that is not JSON, and for values that are nested deeper than 64 levels: functions that visit a value
// call themselves for each level, and too many levels would overflow the stack.
Json parse_json(std::string_view text);

// The message of an exception of the JSON library, without its identifier "[json.exception.…]".
std::string json_error_text(const Json::exception& error);

}  // namespace attnbench
