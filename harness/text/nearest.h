// Suggestions for messages about unknown names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnbench {

// The end of an error message: "; did you mean 'x'?; known: a, b, c", where x is the known name nearest to `name` in edit
// distance. The question is left out if no name is near, and "; none are known" stands for an empty list.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

}  // namespace attnbench
