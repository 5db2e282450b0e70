// Reads environment.json, and makes the columns of the environment that it holds.
#include "harness/records/environment_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "harness/files/text_file.h"
#include "harness/text/errors.h"

namespace attnbench {

Json read_environment(const std::string& folder) {
  constexpr size_t kMaxBytes = size_t{16} << 20;
  const auto path = (std::filesystem::path(folder) / kEnvironmentFile).string();
  if (!std::filesystem::exists(path)) return nullptr;
  return parse_environment(path, read_text_file(path, kMaxBytes));
}

Json parse_environment(const std::string& path, std::string_view text) {
  const auto refuse = [&](const std::string& what) {
    return UsageError(fmt::format("{}: {}; remove the file, since every record also says how it was measured", path, what));
  };
  Json json;
  try {
    json = parse_json(text);
  } catch (const JsonError& error) {
    throw refuse(
        fmt::format("not JSON: {}{}", error.what(), error.position > 0 ? fmt::format(" (byte {})", error.position) : ""));
  }
  if (!json.is_object()) throw refuse("not a JSON object");
  for (const auto* part : {"environment", "settings"})
    if (json.contains(part) && !json[part].is_object()) throw refuse(fmt::format("{} is not a JSON object", part));
  return json;
}

Json environment_columns(const Record& environment) {
  Json json;
  for (const auto& column : columns())
    if (column.group == "environment") json[column.name] = environment.get(column.name);
  return json;
}

}  // namespace attnbench
