// environment.json of a folder of results: the build, the machine and the settings of its records.
#pragma once

#include <string>
#include <string_view>

#include "harness/schema/record.h"

namespace attnbench {

inline constexpr auto kEnvironmentFile = "environment.json";

// The contents of the folder's environment.json; null when there is none. Throws UsageError when it is not a JSON object whose
// `environment` and `settings` are objects.
Json read_environment(const std::string& folder);
// The same for the text of that file; `path` names it in messages.
Json parse_environment(const std::string& path, std::string_view text);

// The columns of `environment` that describe the build and the machine, as environment.json holds them.
Json environment_columns(const Record& environment);

}  // namespace attnbench
