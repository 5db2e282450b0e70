// Which version of attnbench this is, and how it was built.
#pragma once

#include <string>

namespace attnbench {

// Three lines of text: the version, the git revision or why it is unknown, and the build type with the compiler and its flags.
std::string version_text();

}  // namespace attnbench
