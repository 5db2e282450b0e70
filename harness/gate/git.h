// Asks git about repositories. Nothing here fetches, and questions write nothing to the repository.
#pragma once

#include <string>
#include <vector>

#include "harness/process/captured_output.h"

namespace attnbench {

// Arguments of the program `env` that remove the variables by which git would use another repository than that of the current
// folder. Hooks set such variables.
std::vector<std::string> without_git_variables();

// Runs git with these arguments in `folder`, and writes `input` to its standard input. Throws UsageError if git cannot be
// started, and Interrupted on SIGINT or SIGTERM.
CapturedOutput ask_git(const std::string& folder, const std::vector<std::string>& words, const std::string& input = {});

// What git prints. Throws UsageError with the arguments and git's message if it fails.
std::string git_output(const std::string& folder, const std::vector<std::string>& words, const std::string& input = {});

// The first line of the text, without its line end.
std::string first_line(const std::string& text);
// The parts of a text in which each ends with a NUL, as git's option -z makes it.
std::vector<std::string> nul_separated(const std::string& text);

// The full id of the commit that a revision names; empty if it names none. Throws UsageError for a revision that git would take
// for an option, and with git's message if git does not answer, such as for a folder outside of any repository, or for a
// repository that belongs to another user.
std::string find_commit(const std::string& folder, const std::string& revision);

}  // namespace attnbench
