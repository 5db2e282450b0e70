// Refuses TOML whose nesting would overflow the stack of the parser, which calls itself for each level.
#pragma once

#include <string>
#include <string_view>

namespace attnbench {

// Throws UsageError, which names the origin (a file or an option) and the line, if tables, arrays or the parts of a dotted key
// are nested deeper than 64 levels. Text that is not valid TOML may pass; the parser refuses it.
void check_toml_nesting(const std::string& origin, std::string_view text);

}  // namespace attnbench
