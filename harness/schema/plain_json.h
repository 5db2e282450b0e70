// A fast reader of the JSON that programs write.
#pragma once

#include <optional>
#include <string_view>

#include "harness/schema/json.h"

namespace attnbench {

// The value of the JSON text, the same as nlohmann's parser returns, in about a fifth of its time. Nothing for text that is not
// JSON, and for text with anything that takes more care: characters beyond ASCII or escaped as \u, numbers that do not fit, keys
// that an object has twice, and values that nest more than 32 levels deep. The caller leaves these to the other parser.
std::optional<Json> parse_plain_json(std::string_view text);

}  // namespace attnbench
