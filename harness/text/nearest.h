// For messages about names that are not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnbench {

// "; did you mean 'x'?" for the known name nearest to `name`, when one is near, then "; known: a, b, c".
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

}  // namespace attnbench
