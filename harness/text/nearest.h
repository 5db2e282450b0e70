// Suggestions for messages about unknown names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnbench {

// "; did you mean 'x'?; known: a, b, c", where x is the known name nearest to `name`. The question is left out when none is near.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

}  // namespace attnbench
