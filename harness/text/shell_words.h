// Command lines as texts that a user can paste into a shell.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

// The words with spaces between them, quoted where a shell would read them otherwise.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace attnbench
