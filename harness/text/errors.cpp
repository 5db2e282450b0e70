// Puts the messages of libraries into plain words.
#include "harness/text/errors.h"

#include <fmt/format.h>

#include <filesystem>

#include "harness/schema/json.h"

namespace attnbench {

std::string error_text(const std::exception& error) {
  if (const auto* json = dynamic_cast<const Json::exception*>(&error)) return json_error_text(*json);
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return fmt::format("{}: {}", file->path1().string(), file->code().message());
  return error.what();
}

}  // namespace attnbench
