// The JSON type of the whole harness, and the parser of JSON text that comes from elsewhere.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

// Compiled once, in json.cpp, instead of in each source file.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace attnbench {

using Json = nlohmann::ordered_json;

// Thrown for text that is not JSON, holds a number that is too large, or nests too deeply.
struct JsonError : std::invalid_argument {
  explicit JsonError(const std::string& message, size_t where = 0) : std::invalid_argument(message), position(where) {}
  size_t position;  // the byte at which parsing failed, from 1; 0 if it is not known
};

// Throws JsonError. Values may nest 64 levels deep: functions that visit a value call themselves for each level, and too many
// levels would overflow the stack.
Json parse_json(std::string_view text);

// The message of an exception of the JSON library, without its identifier "[json.exception.…]".
std::string json_error_text(const Json::exception& error);

}  // namespace attnbench
